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
    /// Nothing for a question that has been taken and not answered yet.
    held: Mutex<HashMap<u32, Option<Held>>>,
    answered: Condvar,
}

impl Promises {
    /// A segment's pages have been asked for.
    pub(super) fn expect(&self, number: u32) -> Result<(), WireError> {
        match self.locked().insert(number, None) {
            None => Ok(()),
            Some(_) => Err(WireError::Protocol("one segment asked for twice")),
        }
    }

    /// What was promised for this segment, once that is known; nothing, if nothing was asked.
    pub(super) fn take(&self, number: u32) -> Held {
        let waiting =
            |held: &mut HashMap<u32, Option<Held>>| matches!(held.get(&number), Some(None));
        let held = self.answered.wait_while(self.locked(), waiting);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        held.remove(&number).flatten().unwrap_or_default()
    }

    fn keep(&self, number: u32, held: Held) {
        self.locked().insert(number, Some(held));
        self.answered.notify_all();
    }

    /// Nothing will be answered any more.
    pub(super) fn close(&self) {
        self.locked().retain(|_, held| held.is_some());
        self.answered.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<u32, Option<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
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
