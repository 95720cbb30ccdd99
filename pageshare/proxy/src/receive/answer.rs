//! Answers what the sender asks.

use std::sync::mpsc;

use pageshare_index::HashKey;
use pageshare_wire::receiver::Question;
use pageshare_wire::record::Kind;
use pageshare_wire::segment::Held;

use super::session::Session;
use crate::error::Error;
use crate::link::LinkWriter;
use crate::record::add;

/// Answers questions until no more can come, and hands on what it has promised.
pub(super) fn run(
    session: &Session,
    key: &HashKey,
    questions: &mpsc::Receiver<Question>,
    promises: &mpsc::Sender<(u32, Held)>,
    link: &LinkWriter,
) -> Result<(), Error> {
    for Question { number, ask, keep } in questions {
        add(&session.account.counts.pages_asked, ask.hashes.len());
        let (held, answer) = session.hold(ask, key);
        if keep {
            // First: the segment may come as soon as the answer is out. Nobody takes it of a channel
            // that has failed.
            let _ = promises.send((number, held));
        }
        link.send(Kind::Answer, number, &[&answer.encode()])?;
        session.account.sent(link);
    }
    Ok(())
}
