//! The handshake: what is said reads back, who holds a scope's key can prove it, and two programs use
//! the newest version that both speak.

use pageshare_index::ScopeKey;
use pageshare_wire::hello::{
    Confirm, HELLO_BYTES, Hello, MigrationId, REASON_BYTES, Side, Welcome, oldest_of, proof,
    same_proof,
};
use pageshare_wire::{Versions, WireError};
use proptest::prelude::*;

mod common;

use common::hello;

proptest! {
    #[test]
    fn greetings_read_back(migration: [u8; 16], nonce: [u8; 32], channel: u32, window: u32,
                           checksums: bool, scope in "[a-z-]{0,56}", proof: [u8; 32],
                           oldest in 1_u16..9, more in 0_u16..3) {
        let versions = Versions { oldest, newest: oldest + more };
        let migration = MigrationId(migration);
        let hello = Hello { versions, migration, channel, checksums, window, nonce, scope };
        prop_assert_eq!(Hello::decode(&hello.encode(), versions), Ok((versions.newest, hello)));
        let welcome = Welcome::Accepted { in_scope: checksums, window, nonce, proof };
        prop_assert_eq!(Welcome::decode(&welcome.encode(oldest), versions), Ok((oldest, welcome)));
        let confirm = Confirm { proof: checksums.then_some(proof) };
        prop_assert_eq!(Confirm::decode(&confirm.encode()), confirm);
    }
}

#[test]
fn only_a_holder_of_the_scope_key_can_prove_it_and_only_for_this_handshake() {
    let key = ScopeKey([1; 32]);
    let hello = hello(Versions::OURS);
    let alone = |version| Hello { versions: Versions::only(version), ..hello.clone() };
    let ours = proof(&key, Side::Receiver, &hello, 3, &[4; 32]);
    assert!(same_proof(&ours, &proof(&key, Side::Receiver, &hello, 3, &[4; 32])));
    for other in [
        proof(&ScopeKey([2; 32]), Side::Receiver, &hello, 3, &[4; 32]),
        proof(&key, Side::Sender, &hello, 3, &[4; 32]),
        proof(&key, Side::Receiver, &hello, 3, &[5; 32]),
        proof(&key, Side::Receiver, &Hello { nonce: [9; 32], ..hello.clone() }, 3, &[4; 32]),
        proof(&key, Side::Receiver, &alone(3), 3, &[4; 32]),
        proof(&key, Side::Receiver, &hello, 2, &[4; 32]),
    ] {
        assert!(!same_proof(&ours, &other));
    }
    // Who speaks version 2 alone makes its proof over the greeting as it knows it.
    let before = proof(&key, Side::Receiver, &alone(2), 2, &[4; 32]);
    assert!(same_proof(&before, &proof(&key, Side::Receiver, &hello, 2, &[4; 32])));
}

#[test]
fn two_programs_use_the_newest_version_that_both_speak() {
    let span = |oldest, newest| Versions { oldest, newest };
    for (sender, receiver, used) in [
        (span(2, 3), span(2, 3), 3),
        (span(2, 3), span(3, 4), 3),
        (span(3, 4), span(2, 3), 3),
        (span(2, 3), Versions::only(2), 2),
        (Versions::only(2), span(2, 3), 2),
    ] {
        let (version, _) = Hello::decode(&hello(sender).encode(), receiver).expect("one in common");
        assert_eq!(version, used, "{sender} and {receiver}");
    }
    assert_eq!(Versions::OURS.newest - Versions::OURS.oldest, 1, "this one, and the one before");
}

#[test]
fn programs_without_a_common_version_are_told_which_each_speaks_and_what_to_do() {
    let span = |oldest, newest| Versions { oldest, newest };
    for (sender, receiver) in [(span(2, 3), span(14, 15)), (span(14, 15), span(2, 3))] {
        let greeting: [u8; HELLO_BYTES] = hello(sender).encode();
        let error = Hello::decode(&greeting, receiver).expect_err("nothing in common");
        assert_eq!(error, WireError::Versions { sender, receiver });
        let reason = error.to_string();
        assert!(reason.len() <= REASON_BYTES, "it would be cut: {reason}");
        assert!(reason.contains("2 to 3") && reason.contains("14 to 15"), "{reason}");
        assert!(reason.contains("upgrade the older pageshare"), "{reason}");
        // The sender can read the refusal, since it comes in a version that it speaks.
        let refusal = Welcome::Refused(reason.clone()).encode(oldest_of(&greeting));
        let read = Welcome::decode(&refusal, sender).expect("a version that it speaks");
        assert_eq!(read, (sender.oldest, Welcome::Refused(reason)));
    }
}
