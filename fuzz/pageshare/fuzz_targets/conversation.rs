//! No receiver, honest or not, makes the sender's machine panic, keep more than it may, or send what
//! stands for something else; two honest machines come to their end in any order.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)] // The lying senders are the session's.
#[path = "../../../pageshare/wire/tests/common/session.rs"]
mod session;

use session::{Choices, Simulator};

thread_local! {
    static SIMULATOR: RefCell<Simulator> = RefCell::new(Simulator::new());
}

fuzz_target!(|choices: &[u8]| {
    let honest = choices.first().is_some_and(|first| first % 4 == 0);
    let talk = SIMULATOR.with_borrow_mut(|world| world.converse(Choices(choices), honest));
    assert!(!honest || talk.honest && talk.end.is_ok());
});
