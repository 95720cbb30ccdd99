//! No sender, honest or not, makes the receiver's machine panic, hand out a wrong byte, or keep more
//! than it may.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)] // The conversations are another target's.
#[path = "../../../pageshare/wire/tests/common/session.rs"]
mod session;

use session::{Choices, Simulator};

thread_local! {
    static SIMULATOR: RefCell<Simulator> = RefCell::new(Simulator::new());
}

fuzz_target!(|choices: &[u8]| {
    let honest = choices.first().is_some_and(|first| first % 4 == 0);
    let outcome = SIMULATOR.with_borrow_mut(|simulator| simulator.run(Choices(choices), honest));
    assert!(!outcome.honest || outcome.end.is_ok());
    assert!(!outcome.honest || outcome.written <= outcome.stream);
});
