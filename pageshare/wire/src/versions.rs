//! Which versions of the protocol a program speaks, and which one two programs use.

use std::fmt;

use crate::WireError;

/// A run of versions, both ends included. A program speaks the newest and the one before, so that
/// the hosts of a fleet can be upgraded one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest one spoken.
    pub oldest: u16,
    /// The newest one spoken.
    pub newest: u16,
}

impl Versions {
    /// Those that this program speaks.
    pub const OURS: Self = Self { oldest: 2, newest: 3 };

    /// One version alone.
    #[must_use]
    pub const fn only(version: u16) -> Self {
        Self { oldest: version, newest: version }
    }

    /// The version that a sender and a receiver use: the newest that both speak.
    ///
    /// # Errors
    /// If there is none.
    pub fn agree(sender: Self, receiver: Self) -> Result<u16, WireError> {
        let newest = sender.newest.min(receiver.newest);
        if newest < sender.oldest.max(receiver.oldest) {
            return Err(WireError::Versions { sender, receiver });
        }
        Ok(newest)
    }

    /// As a message carries them. A single version has zeros behind it: up to version 2, a message
    /// named one version alone.
    pub(crate) fn encode(self) -> [u8; 4] {
        let newest = if self.newest == self.oldest { 0 } else { self.newest };
        let [a, b] = self.oldest.to_le_bytes();
        let [c, d] = newest.to_le_bytes();
        [a, b, c, d]
    }

    pub(crate) fn decode([a, b, c, d]: [u8; 4]) -> Result<Self, WireError> {
        let (oldest, newest) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
        match newest {
            0 => Ok(Self::only(oldest)),
            newest if newest > oldest => Ok(Self { oldest, newest }),
            _ => Err(WireError::Protocol("versions of a greeting")),
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(to, "{}", self.newest)
        } else {
            write!(to, "{} to {}", self.oldest, self.newest)
        }
    }
}
