//! A channel's machine among its threads: it is locked for what it does itself, and for nothing else.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pageshare_wire::WireError;
use pageshare_wire::ask::Ask;
use pageshare_wire::record::Header;
use pageshare_wire::segment::Encoded;
use pageshare_wire::sender::{Heard, Purpose, Sender};
use pageshare_wire::window::Window;

use super::ingest::Waiting;
use crate::buffers::SEGMENT_BYTES;
use crate::error::Error;
use crate::threads::locked;

/// How often it is looked whether QEMU is still there.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Machine {
    state: Mutex<State>,
    changed: Condvar,
    over: Condvar,
    began: Instant,
}

struct State {
    sender: Sender<Waiting>,
    /// Nobody will answer or make room any more.
    given_up: bool,
}

impl Machine {
    pub(super) fn new(window: Window) -> Self {
        let state = Mutex::new(State { sender: Sender::new(window), given_up: false });
        Self { state, changed: Condvar::new(), over: Condvar::new(), began: Instant::now() }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Waits until a segment has room in the window. Returns whether it has, or never will.
    pub(super) fn wait_for_room(&self) -> bool {
        let full =
            |state: &mut State| !state.given_up && state.sender.room() < SEGMENT_BYTES as u64;
        let waited = self.changed.wait_while(self.locked(), full);
        !waited.unwrap_or_else(PoisonError::into_inner).given_up
    }

    /// Waits until nobody will answer or make room any more.
    ///
    /// # Errors
    /// If QEMU `is_lost` meanwhile.
    pub(super) fn watch(&self, is_lost: impl Fn() -> bool) -> Result<(), Error> {
        let mut state = self.locked();
        while !state.given_up {
            let waited = self.over.wait_timeout_while(state, LOOK, |state| !state.given_up);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !state.given_up && is_lost() {
                return Err(Error::Closed { what: "the source QEMU" });
            }
        }
        Ok(())
    }

    /// Whether nobody will answer or make room any more.
    pub(super) fn has_given_up(&self) -> bool {
        self.locked().given_up
    }

    pub(super) fn took(&self, bytes: usize) -> u64 {
        self.locked().sender.took(bytes)
    }

    pub(super) fn asks(&self, number: u32, ask: &Ask, purpose: Purpose, with: Waiting) {
        let mut state = self.locked();
        if !state.given_up {
            state.sender.asks(number, ask, purpose, with, self.began.elapsed());
        }
    }

    pub(super) fn leaves(&self, number: u32, segment: &Encoded) -> Vec<u8> {
        self.locked().sender.leaves(number, segment)
    }

    pub(super) fn supplied(&self, bytes: usize) {
        self.locked().sender.supplied(bytes);
        self.changed.notify_all();
    }

    pub(super) fn ends(&self) {
        self.locked().sender.ends();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.locked().sender.has_ended()
    }

    pub(super) fn is_over(&self) -> bool {
        self.locked().sender.is_over()
    }

    pub(super) fn hears<'a>(
        &self,
        header: Header,
        body: &'a [u8],
    ) -> Result<Heard<'a, Waiting>, WireError> {
        let heard = self.locked().sender.hears(header, body, self.began.elapsed());
        self.changed.notify_all();
        heard
    }

    /// Whoever waits for an answer or for room waits in vain: it is let go.
    pub(super) fn give_up(&self) {
        let mut state = self.locked();
        state.given_up = true;
        let forgotten = state.sender.forgets();
        drop(state);
        drop(forgotten);
        self.changed.notify_all();
        self.over.notify_all();
    }
}
