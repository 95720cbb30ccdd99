//! Answers what the sender asks, and keeps what it has promised until the segment comes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, mpsc};

use pageshare_index::PageHash;
use pageshare_wire::WireError;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Held;

use super::session::Session;
use crate::error::Error;
use crate::link::LinkWriter;
use crate::record::add;

/// One Ask, taken apart.
pub(super) struct Question {
    pub(super) number: u32,
    pub(super) hashes: Vec<PageHash>,
    /// A segment comes that may refer to what is affirmed.
    pub(super) keep: bool,
}

/// What was answered, by segment number.
#[derive(Default)]
pub(super) struct Promises(Mutex<HashMap<u32, Held>>);

impl Promises {
    /// What was promised for this segment; nothing, if nothing was asked.
    pub(super) fn take(&self, number: u32) -> Held {
        let mut promises = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        promises.remove(&number).unwrap_or_default()
    }

    fn keep(&self, number: u32, held: Held) -> Result<(), WireError> {
        let mut promises = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match promises.insert(number, held) {
            None => Ok(()),
            Some(_) => Err(WireError::Protocol("one segment asked for twice")),
        }
    }
}

/// Answers questions until no more can come.
pub(super) fn run(
    session: &Session,
    questions: &mpsc::Receiver<Question>,
    promises: &Promises,
    link: &LinkWriter,
) -> Result<(), Error> {
    for Question { number, hashes, keep } in questions {
        add(&session.account.pages_asked, hashes.len());
        let held = session.hold(hashes);
        let answer = held.known.as_bytes().to_vec();
        if keep {
            // Kept first: the segment may come as soon as the answer is out.
            promises.keep(number, held)?;
        }
        link.send(Kind::Answer, number, &[&answer])?;
    }
    Ok(())
}
