//! Segments that wait for what a Supply is to bring, and those behind them.

use std::collections::VecDeque;

use pageshare_wire::WireError;
use pageshare_wire::record::LONGEST_SEGMENT;
use pageshare_wire::segment::Held;

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
    /// None yet, of a channel with this window.
    pub(super) fn new(window: u64) -> Self {
        let limit = window + LONGEST_SEGMENT as u64;
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
        self.count(&segment);
        if self.stream_bytes > self.limit || self.memory > 2 * self.limit {
            return Err(WireError::Protocol("more sent than fits the window"));
        }
        self.segments.push_back(segment);
        Ok(())
    }

    /// Takes the first one out.
    pub(super) fn take_first(&mut self) -> Option<Stalled> {
        let first = self.segments.pop_front()?;
        self.stream_bytes -= first.stream_bytes;
        self.memory -= first.memory();
        Some(first)
    }

    /// Puts the first one back: it has to wait on.
    pub(super) fn put_back(&mut self, first: Stalled) {
        self.count(&first);
        self.segments.push_front(first);
    }

    fn count(&mut self, segment: &Stalled) {
        self.stream_bytes += segment.stream_bytes;
        self.memory += segment.memory();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1 << 20;

    /// How many segments with bodies of this length, which say that they stand for so many bytes,
    /// may wait.
    fn room(body: usize, stream_bytes: usize) -> usize {
        let mut waiting = Waiting::new(WINDOW);
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
    fn what_has_gone_makes_room_and_what_is_put_back_takes_it() {
        let mut waiting = Waiting::new(WINDOW);
        let push = |waiting: &mut Waiting| waiting.push(&[0; 40], 1 << 20, None);
        assert!(push(&mut waiting).is_ok() && push(&mut waiting).is_ok());
        let first = waiting.take_first().unwrap();
        assert_eq!((first.body.len(), waiting.len()), (40, 1));
        waiting.put_back(first);
        assert_eq!(waiting.len(), 2);
        drop(waiting.take_first());
        assert!(push(&mut waiting).is_ok());
        assert!(push(&mut waiting).is_err());
    }
}
