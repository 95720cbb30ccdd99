//! Numbers for the guest's RAM blocks, which QEMU names.

use pageshare_stream::MOST_BLOCKS;

/// Names of RAM blocks; a block's number is its name's place.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BlockNames(Vec<Vec<u8>>);

impl BlockNames {
    /// The number of the block with this name, a new one if it has none yet. Pages name them, and may
    /// come from a hostile host: beyond what a guest can have, the number is no block's.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        let known = self.0.iter().position(|known| known == name);
        let number = known.unwrap_or(self.0.len());
        if number == self.0.len() && number < MOST_BLOCKS {
            self.0.push(name.to_vec());
        }
        if number < MOST_BLOCKS { u32::try_from(number).unwrap_or(u32::MAX) } else { u32::MAX }
    }

    /// The name of the block with this number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<&[u8]> {
        self.0.get(number as usize).map(Vec::as_slice)
    }

    /// All names, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice)
    }
}

impl FromIterator<Vec<u8>> for BlockNames {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(names: I) -> Self {
        Self(names.into_iter().collect())
    }
}

/// A channel's last block: pages of one come together, and names and numbers are shared.
#[derive(Default)]
pub struct LastBlock(Option<(Vec<u8>, u32)>);

impl LastBlock {
    /// The number of the block with this name; `ask` is asked where it is not the last one.
    pub fn number(&mut self, name: &[u8], ask: impl FnOnce(&[u8]) -> u32) -> u32 {
        match &self.0 {
            Some((last, number)) if last == name => *number,
            _ => self.0.insert((name.to_vec(), ask(name))).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_end_are_not_remembered() {
        let mut names = BlockNames::default();
        let numbers: Vec<u32> =
            (0..2000_u32).map(|name| names.number(&name.to_le_bytes())).collect();
        assert_eq!(names.iter().len(), MOST_BLOCKS);
        assert_eq!((numbers[1023], numbers[1024]), (1023, u32::MAX));
        assert_eq!(names.number(&7_u32.to_le_bytes()), 7);
        assert_eq!(names.name(u32::MAX), None);
    }
}
