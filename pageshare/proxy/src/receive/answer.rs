//! Answers what the sender asks, and keeps what it has promised until the segment comes.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};

use pageshare_index::HashKey;
use pageshare_wire::WireError;
use pageshare_wire::ask::Ask;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Held;

use super::session::Session;
use crate::error::Error;
use crate::link::LinkWriter;
use crate::record::add;

/// One Ask, taken apart.
pub(super) struct Question {
    pub(super) number: u32,
    pub(super) ask: Ask,
    /// A segment comes that may refer to what is affirmed.
    pub(super) keep: bool,
}

/// What was answered, by segment number.
#[derive(Default)]
pub(super) struct Promises {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Nothing for a question that has been taken and not answered yet.
    held: HashMap<u32, Option<Held>>,
    /// Nothing will be answered any more.
    closed: bool,
}

impl Promises {
    /// A segment's pages have been asked for.
    pub(super) fn expect(&self, number: u32) -> Result<(), WireError> {
        match self.state().held.insert(number, None) {
            None => Ok(()),
            Some(_) => Err(WireError::Protocol("one segment asked for twice")),
        }
    }

    /// What was promised for this segment, once that is known; nothing, if nothing was asked.
    pub(super) fn take(&self, number: u32) -> Held {
        let waiting =
            |state: &mut State| !state.closed && matches!(state.held.get(&number), Some(None));
        let state = self.changed.wait_while(self.state(), waiting);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.held.remove(&number).flatten().unwrap_or_default()
    }

    /// Nothing will be answered any more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    fn keep(&self, number: u32, held: Held) {
        self.state().held.insert(number, Some(held));
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers questions until no more can come.
pub(super) fn run(
    session: &Session,
    key: &HashKey,
    questions: &mpsc::Receiver<Question>,
    promises: &Promises,
    link: &LinkWriter,
) -> Result<(), Error> {
    for Question { number, ask, keep } in questions {
        add(&session.account.pages_asked, ask.hashes.len());
        let (held, answer) = session.hold(ask, key);
        if keep {
            // Kept first: the segment may come as soon as the answer is out.
            promises.keep(number, held);
        }
        link.send(Kind::Answer, number, &[&answer.encode()])?;
        session.account.sent(link);
    }
    Ok(())
}
