//! Segments that wait for what a Supply is to bring, and those behind them.

use std::collections::VecDeque;

use crate::WireError;
use crate::segment::Held;

/// A segment that cannot be expanded yet.
pub(super) struct Stalled {
    pub(super) body: Vec<u8>,
    stream_bytes: u64,
    /// What was promised for it, once it is its turn.
    pub(super) held: Option<Held>,
}

impl Stalled {
    fn memory(&self) -> u64 {
        (size_of::<Self>() + self.body.len()) as u64
    }
}

/// Segments in order, the first of which lacks what a Supply is to bring.
pub(super) struct Waiting {
    segments: VecDeque<Stalled>,
    /// Of the stream, for which the segments stand.
    stream_bytes: u64,
    /// Bytes that the segments take here.
    memory: u64,
    /// What may wait at most, in bytes of the stream.
    limit: u64,
}

impl Waiting {
    /// None yet; `limit` bytes of the stream may wait.
    pub(super) fn new(limit: u64) -> Self {
        Self { segments: VecDeque::new(), stream_bytes: 0, memory: 0, limit }
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Adds a segment that stands for so many bytes of the stream.
    ///
    /// # Errors
    /// If that is more than may wait. What a segment says that it stands for bounds no memory: its
    /// body counts too, against twice the limit, since a zero page's operation is longer than the
    /// zero page.
    pub(super) fn push(
        &mut self,
        body: &[u8],
        stream_bytes: usize,
        held: Option<Held>,
    ) -> Result<(), WireError> {
        let segment = Stalled { body: body.to_vec(), stream_bytes: stream_bytes as u64, held };
        self.stream_bytes += segment.stream_bytes;
        self.memory += segment.memory();
        if self.stream_bytes > self.limit || self.memory > 2 * self.limit {
            return Err(WireError::Protocol("more sent than fits the window"));
        }
        self.segments.push_back(segment);
        Ok(())
    }

    /// The one that is expanded next.
    pub(super) fn first(&mut self) -> Option<&mut Stalled> {
        self.segments.front_mut()
    }

    /// Takes the first one out; its body.
    pub(super) fn take_first(&mut self) -> Vec<u8> {
        let Some(first) = self.segments.pop_front() else { return Vec::new() };
        self.stream_bytes -= first.stream_bytes;
        self.memory -= first.memory();
        first.body
    }

    /// What was promised for those whose turn it is.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.segments.iter().filter_map(|segment| segment.held.as_ref())
    }

    /// Bytes that the segments take, without what was promised for them.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window and a segment.
    const LIMIT: u64 = 2 << 20;

    /// How many segments with bodies of this length, which say that they stand for so many bytes,
    /// may wait.
    fn room(body: usize, stream_bytes: usize) -> usize {
        let mut waiting = Waiting::new(LIMIT);
        while waiting.push(&vec![0; body], stream_bytes, None).is_ok() {}
        waiting.len()
    }

    #[test]
    fn what_waits_is_bounded_by_what_it_stands_for_and_by_what_it_takes() {
        assert_eq!(room(40, 256 << 10), 8, "a window and a segment");
        assert_eq!(room(1 << 20, 1), 3, "twice that, and each takes a little more than its body");
        assert_eq!(room(4 << 20, 1), 0);
        assert!(room(0, 0) < 1 << 17, "what has no body takes something too");
    }

    #[test]
    fn what_has_gone_makes_room() {
        let mut waiting = Waiting::new(LIMIT);
        let push = |waiting: &mut Waiting| waiting.push(&[0; 40], 1 << 20, None);
        assert!(push(&mut waiting).is_ok() && push(&mut waiting).is_ok());
        assert_eq!((waiting.take_first().len(), waiting.len()), (40, 1));
        assert!(push(&mut waiting).is_ok());
        assert!(push(&mut waiting).is_err());
    }
}
