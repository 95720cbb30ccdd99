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

/// Runs 6000 sessions, of `words` choices each and one in four honest, or `PAGESHARE_SESSIONS` as in
/// `PAGESHARE_SESSIONS=1000000 cargo test --release -p pageshare-wire --test sessions -- --nocapture`;
/// each end that is expected has to be met. A session returns what was written, whether nobody lied,
/// and its end.
fn many(
    liar: &str,
    words: usize,
    expected: &[&str],
    run: impl Fn(&mut Simulator, Choices<'_>, bool) -> (usize, bool, Result<bool, WireError>),
) {
    let sessions = std::env::var("PAGESHARE_SESSIONS").map_or(6000, |count| {
        count.parse().expect("PAGESHARE_SESSIONS is a number of sessions, such as 1000000")
    });
    let mut simulator = Simulator::new();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut bytes, mut lies) = (0, 0);
    for session in 0..sessions {
        let choices = choices(session, words);
        let (written, honest, end) = run(&mut simulator, Choices(&choices), session % 4 == 0);
        bytes += written as u64;
        lies += u64::from(!honest);
        *ends.entry(word(&end)).or_default() += 1;
    }
    println!("{sessions} sessions, {lies} with a {liar} that lies, {bytes} bytes: {ends:?}");
    for end in expected {
        assert!(ends.contains_key(end), "no session of {sessions}: {end}; {ends:?}");
    }
}

#[test]
fn so_many_sessions_meet_every_refusal_and_hand_out_no_wrong_byte() {
    many("sender", 40, &REFUSALS, |simulator, choices, honest| {
        let outcome = simulator.run(choices, honest);
        assert!(outcome.written <= outcome.stream || !outcome.honest);
        (outcome.written, outcome.honest, outcome.end)
    });
}

#[test]
fn so_many_conversations_meet_every_complaint_and_hand_out_no_wrong_byte() {
    many("receiver", 500, &COMPLAINTS, |simulator, choices, honest| {
        let talk = simulator.converse(choices, honest);
        (talk.written, talk.honest, talk.end)
    });
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
