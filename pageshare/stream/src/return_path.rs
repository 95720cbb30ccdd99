//! What the destination QEMU says to the source: messages of a 16-bit type, a 16-bit length and so
//! many bytes, big-endian. The last one, SHUT, tells whether the guest has been loaded.

const HEADER: usize = 4;
/// Type 1, four bytes, which are zero if nothing failed.
const SHUT: [u8; HEADER] = [0, 1, 0, 4];
const LOADED: [u8; 4] = [0; 4];

/// Follows a return path, in pieces of any size.
///
/// Of bytes that are no return path, such as those of a channel that has none, nothing is said.
#[derive(Debug, Default)]
pub struct ReturnPath {
    /// The beginning of a message: its header, and all of it if it is SHUT.
    held: Vec<u8>,
    /// Bytes of the message that are still to come and do not matter.
    skip: usize,
    loaded: bool,
}

impl ReturnPath {
    /// Takes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let (taken, rest) = bytes[skipped..]
                .split_at_checked(self.lacking())
                .unwrap_or((&bytes[skipped..], &[]));
            self.held.extend(taken);
            bytes = rest;
            if self.lacking() == 0 {
                self.message();
            }
        }
    }

    /// Whether the destination has said that it has loaded the guest.
    #[must_use]
    pub fn loaded(&self) -> bool {
        self.loaded
    }

    /// Bytes without which the message held cannot be judged.
    fn lacking(&self) -> usize {
        let payload = if self.held.starts_with(&SHUT) { LOADED.len() } else { 0 };
        HEADER + payload - self.held.len()
    }

    fn message(&mut self) {
        match self.held.split_first_chunk::<HEADER>() {
            Some((&SHUT, verdict)) => self.loaded |= verdict == LOADED,
            Some(([_, _, high, low], _)) => self.skip = u16::from_be_bytes([*high, *low]).into(),
            None => {}
        }
        self.held.clear();
    }
}
