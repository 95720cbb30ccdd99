//! Records: a fixed header of 16 bytes, then a body.

use crate::WireError;

/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 16;
/// No body is longer.
pub const LONGEST_BODY: usize = 4 << 20;
/// Expanded stream bytes of a segment, at most.
pub const LONGEST_SEGMENT: usize = 1 << 20;

/// What a record is. Zero is no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Sender: 16-byte hashes of the pages of a segment.
    Ask = 1,
    /// Sender: the next stretch of the stream.
    Segment = 2,
    /// Sender: QEMU has closed its writing side.
    End = 3,
    /// Sender: hashes as in an Ask, of which the receiver keeps nothing: for an estimate.
    Probe = 4,
    /// Sender: contents that the receiver's Answer shows to be missing from a Segment that has
    /// gone before the Answer came.
    Supply = 5,
    /// Receiver: one bit for each hash of the Ask or Probe with the same number.
    Answer = 17,
    /// Receiver: stream bytes that QEMU has accepted so far, 64 bits.
    Credit = 18,
    /// Receiver: bytes of QEMU's return path.
    Reverse = 19,
    /// Receiver: QEMU has closed its writing side.
    ReverseEnd = 20,
    /// Either: why the channel ends here, in words.
    Abort = 33,
}

/// A record's header, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Bytes of its body.
    pub length: u32,
    /// Number of the segment it belongs to; zero where there is none.
    pub sequence: u32,
    checksum: u32,
}

impl Header {
    /// A header for this body, which may come in parts.
    ///
    /// # Panics
    /// Never for bodies up to [`LONGEST_BODY`], and no caller makes longer ones.
    #[must_use]
    pub fn of(kind: Kind, sequence: u32, body: &[&[u8]], checksums: bool) -> Self {
        let length = body.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).expect("bodies are at most 4 MiB");
        let mut header = Self { kind, length, sequence, checksum: 0 };
        if checksums {
            header.checksum = header.compute(body);
        }
        header
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = self.kind as u8;
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        out[12..].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If the kind is unknown, a reserved byte is set, or the body would be too long.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let [kind, z0, z1, z2, l0, l1, l2, l3, s0, s1, s2, s3, c0, c1, c2, c3] = *bytes;
        let kind = match kind {
            1 => Kind::Ask,
            2 => Kind::Segment,
            3 => Kind::End,
            4 => Kind::Probe,
            5 => Kind::Supply,
            17 => Kind::Answer,
            18 => Kind::Credit,
            19 => Kind::Reverse,
            20 => Kind::ReverseEnd,
            33 => Kind::Abort,
            _ => return Err(WireError::Protocol("kind of a record")),
        };
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if (z0, z1, z2) != (0, 0, 0) || length as usize > LONGEST_BODY {
            return Err(WireError::Protocol("header of a record"));
        }
        let sequence = u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(Self { kind, length, sequence, checksum: u32::from_le_bytes([c0, c1, c2, c3]) })
    }

    /// Compares the body with the checksum, if there are checksums.
    ///
    /// # Errors
    /// If they do not belong together.
    pub fn check(&self, body: &[u8], checksums: bool) -> Result<(), WireError> {
        if checksums && self.checksum != self.compute(&[body]) {
            return Err(WireError::Damaged("CRC32C of a record"));
        }
        Ok(())
    }

    fn compute(&self, body: &[&[u8]]) -> u32 {
        let head = crc32c::crc32c(&self.encode()[..12]);
        body.iter().fold(head, |crc, part| crc32c::crc32c_append(crc, part))
    }
}

/// Reads the body of a Credit.
///
/// # Errors
/// If it is not eight bytes.
pub fn decode_credit(body: &[u8]) -> Result<u64, WireError> {
    body.try_into().map(u64::from_le_bytes).map_err(|_| WireError::Protocol("length of a Credit"))
}
