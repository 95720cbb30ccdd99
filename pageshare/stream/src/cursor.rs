//! Reads fields off the front of a buffer that may still be too short.

/// The bytes did not suffice; ask again with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short;

/// A position in a buffer. Nothing is consumed until the caller takes [`Cursor::position`].
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Short> {
        let end = self.position.checked_add(length).ok_or(Short)?;
        let taken = self.bytes.get(self.position..end).ok_or(Short)?;
        self.position = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        self.take(N)?.try_into().map_err(|_| Short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    /// A name of at most 255 bytes behind its length.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Short> {
        let length = self.u8()?;
        self.take(usize::from(length))
    }
}

/// A name for people; QEMU's names are ASCII.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
