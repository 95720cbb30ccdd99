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

/// How often who waits looks whether QEMU is still there.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Machine {
    state: Mutex<State>,
    changed: Condvar,
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
        Self { state, changed: Condvar::new(), began: Instant::now() }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Waits until a segment has room in the window. Returns whether it has, or never will.
    ///
    /// # Errors
    /// If QEMU `is_lost` meanwhile.
    pub(super) fn wait_for_room(&self, is_lost: impl Fn() -> bool) -> Result<bool, Error> {
        self.wait_while(|sender| sender.room() < SEGMENT_BYTES as u64, is_lost)
    }

    /// Waits until nothing more will come of the channel.
    ///
    /// # Errors
    /// If QEMU `is_lost` meanwhile.
    pub(super) fn wait_for_end(&self, is_lost: impl Fn() -> bool) -> Result<(), Error> {
        self.wait_while(|_| true, is_lost).map(drop)
    }

    fn wait_while(
        &self,
        waits: impl Fn(&Sender<Waiting>) -> bool,
        is_lost: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        let mut state = self.locked();
        loop {
            let goes_on = |state: &mut State| !state.given_up && waits(&state.sender);
            let waited = self.changed.wait_timeout_while(state, LOOK, goes_on);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if !timeout.timed_out() {
                return Ok(!now.given_up);
            }
            if is_lost() {
                return Err(Error::Closed { what: "the source QEMU" });
            }
            state = now;
        }
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
    }
}
