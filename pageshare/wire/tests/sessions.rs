//! Whole sessions without sockets: honest senders and receivers in any order that the protocol
//! allows, lost connections, and either side lying.

use std::collections::BTreeMap;

use pageshare_wire::WireError;
use proptest::prelude::*;

#[path = "common/session.rs"]
mod session;

use session::{Choices, Simulator};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_honest_session_arrives_whole_or_is_cut_where_the_connection_is(
        choices in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let outcome = Simulator::new().run(Choices(&choices), true);
        prop_assert!(outcome.honest);
    }

    #[test]
    fn a_lying_sender_has_no_wrong_byte_handed_out_and_no_memory_beyond_the_bound(
        choices in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        Simulator::new().run(Choices(&choices), false);
    }

    #[test]
    fn both_machines_come_to_their_end_in_any_order_and_say_what_they_stand_for_whatever_is_said(
        choices in prop::collection::vec(any::<u8>(), 0..1000),
        honest in any::<bool>(),
    ) {
        let talk = Simulator::new().converse(Choices(&choices), honest);
        prop_assert!(!honest || talk.honest && talk.end.is_ok());
    }
}

/// What a receiver may say of a sender that lies, all of which has to be met.
const REFUSALS: [&str; 17] = [
    "a Supply that nothing lacks",
    "a delta to a page not held",
    "a receiver's record from a sender",
    "a reference to a page not held",
    "chained digest of a segment",
    "form of a Supply",
    "form of an Ask",
    "hash of a page",
    "header of a segment",
    "more asked than fits the window",
    "more sent than fits the window",
    "no Supply behind the End",
    "one segment asked for twice",
    "operations of a segment",
    "order of the segments",
    "the peer gave up",
    "the session was cut",
];

/// What the two machines may say if the receiver's proxy lies, all of which has to be met.
const COMPLAINTS: [&str; 11] = [
    "a delta to a page not held",
    "a reference to a page not held",
    "a sender's record from a receiver",
    "an answer to no question",
    "length of a Credit",
    "length of an answer",
    "more accepted than sent",
    "nothing behind the end of the return path",
    "the peer gave up",
    "the session was cut",
    "whole",
];

/// Runs so many sessions of each kind: 6000, or `PAGESHARE_SESSIONS` as in
/// `PAGESHARE_SESSIONS=1000000 cargo test --release -p pageshare-wire --test sessions -- --nocapture`.
fn sessions() -> u64 {
    std::env::var("PAGESHARE_SESSIONS").map_or(6000, |count| {
        count.parse().expect("PAGESHARE_SESSIONS is a number of sessions, such as 1000000")
    })
}

#[test]
fn so_many_sessions_meet_every_refusal_and_hand_out_no_wrong_byte() {
    let mut simulator = Simulator::new();
    let mut ends = BTreeMap::new();
    let (mut written, mut lies) = (0, 0);
    for session in 0..sessions() {
        let choices = choices(session, 40);
        let outcome = simulator.run(Choices(&choices), session % 4 == 0);
        written += outcome.written as u64;
        assert!(outcome.written <= outcome.stream || !outcome.honest);
        lies += u64::from(!outcome.honest);
        *ends.entry(word(&outcome.end)).or_default() += 1;
    }
    told("sender", lies, written, &ends, &REFUSALS);
}

#[test]
fn so_many_conversations_meet_every_complaint_and_hand_out_no_wrong_byte() {
    let mut simulator = Simulator::new();
    let mut ends = BTreeMap::new();
    let (mut written, mut lies) = (0, 0);
    for session in 0..sessions() {
        let choices = choices(session, 500);
        let talk = simulator.converse(Choices(&choices), session % 4 == 0);
        written += talk.written as u64;
        lies += u64::from(!talk.honest);
        *ends.entry(word(&talk.end)).or_default() += 1;
    }
    told("receiver", lies, written, &ends, &COMPLAINTS);
}

fn told(liar: &str, lies: u64, written: u64, ends: &BTreeMap<&str, u64>, expected: &[&str]) {
    let sessions = sessions();
    println!("{sessions} sessions, {lies} with a {liar} that lies, {written} bytes: {ends:?}");
    for end in expected {
        assert!(ends.contains_key(end), "no session of {sessions}: {end}; {ends:?}");
    }
}

fn word(end: &Result<bool, WireError>) -> &'static str {
    match end {
        Ok(true) => "whole",
        Ok(false) => "the session was cut",
        Err(WireError::Protocol(what) | WireError::Damaged(what)) => what,
        Err(WireError::Aborted(_)) => "the peer gave up",
        Err(_) => "something else",
    }
}

/// Bytes that look random, the same for the same session (Steele et al., `SplitMix64`, 2014).
fn choices(session: u64, words: usize) -> Vec<u8> {
    let mut state = session;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31).to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(words).flatten().collect()
}
