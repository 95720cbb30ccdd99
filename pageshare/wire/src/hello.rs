//! The handshake: three fixed messages, of the same form in every version, so that two programs that
//! have no version in common can tell each other so.

use pageshare_index::{HashKey, ScopeKey};

use crate::{Versions, WireError};

/// How a [`Hello`] begins.
pub const MAGIC: [u8; 4] = *b"PGSH";
const CHECKSUMS: u32 = 1;
const IN_SCOPE: u32 = 2;
const ACCEPTED: u32 = 1;
const REFUSED: u32 = 2;

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 128;
/// Bytes of a [`Welcome`].
pub const WELCOME_BYTES: usize = 192;
/// Bytes of a [`Confirm`].
pub const CONFIRM_BYTES: usize = 40;
/// A refusal's reason is at most this long.
pub const REASON_BYTES: usize = WELCOME_BYTES - REASON_AT;
const REASON_AT: usize = 88;
/// A scope's name is at most this long.
pub const SCOPE_NAME_BYTES: usize = 56;

/// Which migration a channel belongs to; random, made by the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MigrationId(pub [u8; 16]);

impl MigrationId {
    /// The key for pages shared within this migration alone, when no scope is agreed.
    #[must_use]
    pub fn hash_key(&self) -> HashKey {
        ScopeKey(blake3::derive_key("pageshare 2026 within one migration", &self.0)).hash_key()
    }
}

/// The sender's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The versions that the sender speaks.
    pub versions: Versions,
    /// Which migration this channel belongs to.
    pub migration: MigrationId,
    /// The channel's number within it, for the logs.
    pub channel: u32,
    /// Records carry CRC32C (there is no TLS).
    pub checksums: bool,
    /// Expanded stream bytes that the sender would keep in flight.
    pub window: u32,
    /// Fresh random bytes.
    pub nonce: [u8; 32],
    /// The scope that the sender asks in; empty for none.
    pub scope: String,
}

/// The receiver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Welcome {
    /// Go on.
    Accepted {
        /// The receiver knows the scope; `proof` shows it.
        in_scope: bool,
        /// Expanded stream bytes that the receiver lets be in flight.
        window: u32,
        /// Fresh random bytes.
        nonce: [u8; 32],
        /// [`proof`] of the receiver; zeros when not in scope.
        proof: [u8; 32],
    },
    /// The receiver's reason; it closes the connection.
    Refused(String),
}

/// The sender's last word of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirm {
    /// [`proof`] of the sender, or nothing to go on outside any scope.
    pub proof: Option<[u8; 32]>,
}

/// Who proves that it holds the scope's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host that the VM leaves.
    Sender,
    /// The host that it goes to.
    Receiver,
}

/// What only a holder of the scope's key can compute for this handshake, in this version. From
/// version 3 on it covers the versions that the sender offers, so that nobody between can change
/// them unnoticed; version 2 knows of no other.
#[must_use]
pub fn proof(
    key: &ScopeKey,
    side: Side,
    hello: &Hello,
    version: u16,
    receiver_nonce: &[u8; 32],
) -> [u8; 32] {
    let mut greeting = hello.encode();
    if version == 2 {
        greeting[4..8].copy_from_slice(&Versions::only(version).encode());
    }
    let mut hasher = blake3::Hasher::new_keyed(&key.proof_key());
    hasher.update(match side {
        Side::Sender => b"sender..",
        Side::Receiver => b"receiver",
    });
    hasher.update(&greeting);
    hasher.update(receiver_nonce);
    *hasher.finalize().as_bytes()
}

/// Compares proofs in constant time.
#[must_use]
pub fn same_proof(one: &[u8; 32], other: &[u8; 32]) -> bool {
    blake3::Hash::from_bytes(*one) == blake3::Hash::from_bytes(*other)
}

impl Hello {
    /// The message. A scope's name that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.versions.encode());
        out[8..12].copy_from_slice(&(if self.checksums { CHECKSUMS } else { 0 }).to_le_bytes());
        out[12..16].copy_from_slice(&self.channel.to_le_bytes());
        out[16..32].copy_from_slice(&self.migration.0);
        out[32..64].copy_from_slice(&self.nonce);
        out[64..68].copy_from_slice(&self.window.to_le_bytes());
        let scope = self.scope.as_bytes();
        let length = scope.len().min(SCOPE_NAME_BYTES);
        out[72..72 + length].copy_from_slice(&scope[..length]);
        out
    }

    /// Reads the message as a receiver that speaks `ours`; returns the version to use with it.
    ///
    /// # Errors
    /// If the peer is something else, speaks none of these versions, or its scope is not a name.
    pub fn decode(bytes: &[u8; HELLO_BYTES], ours: Versions) -> Result<(u16, Self), WireError> {
        let versions = begins_with(bytes)?;
        let version = Versions::agree(versions, ours)?;
        let scope = bytes[72..].split(|byte| *byte == 0).next().unwrap_or_default();
        let scope = str::from_utf8(scope).map_err(|_| WireError::Protocol("scope's name"))?;
        let hello = Self {
            versions,
            migration: MigrationId(at(bytes, 16)),
            channel: u32::from_le_bytes(at(bytes, 12)),
            checksums: u32::from_le_bytes(at(bytes, 8)) & CHECKSUMS != 0,
            window: u32::from_le_bytes(at(bytes, 64)),
            nonce: at(bytes, 32),
            scope: scope.to_owned(),
        };
        Ok((version, hello))
    }
}

/// The oldest version that a sender says it speaks, in which alone it is sure to read a refusal.
#[must_use]
pub fn oldest_of(greeting: &[u8; HELLO_BYTES]) -> u16 {
    u16::from_le_bytes(at(greeting, 4))
}

impl Welcome {
    /// The message, in the version to use. A reason that is too long is cut.
    #[must_use]
    pub fn encode(&self, version: u16) -> [u8; WELCOME_BYTES] {
        let mut out = [0; WELCOME_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&Versions::only(version).encode());
        match self {
            Self::Accepted { in_scope, window, nonce, proof } => {
                let flags = if *in_scope { IN_SCOPE } else { 0 };
                out[8..12].copy_from_slice(&flags.to_le_bytes());
                out[12..16].copy_from_slice(&ACCEPTED.to_le_bytes());
                out[16..20].copy_from_slice(&window.to_le_bytes());
                out[24..56].copy_from_slice(nonce);
                out[56..88].copy_from_slice(proof);
            }
            Self::Refused(reason) => {
                out[12..16].copy_from_slice(&REFUSED.to_le_bytes());
                let length = reason.len().min(REASON_BYTES);
                out[REASON_AT..REASON_AT + length].copy_from_slice(&reason.as_bytes()[..length]);
            }
        }
        out
    }

    /// Reads the message as a sender that speaks `ours`; returns the version that the receiver has
    /// chosen.
    ///
    /// # Errors
    /// If the peer is something else, or has chosen none of these versions.
    pub fn decode(bytes: &[u8; WELCOME_BYTES], ours: Versions) -> Result<(u16, Self), WireError> {
        let version = Versions::agree(ours, begins_with(bytes)?)?;
        let welcome = match u32::from_le_bytes(at(bytes, 12)) {
            ACCEPTED => Self::Accepted {
                in_scope: u32::from_le_bytes(at(bytes, 8)) & IN_SCOPE != 0,
                window: u32::from_le_bytes(at(bytes, 16)),
                nonce: at(bytes, 24),
                proof: at(bytes, 56),
            },
            REFUSED => {
                let reason = bytes[REASON_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
                Self::Refused(String::from_utf8_lossy(reason).into_owned())
            }
            _ => return Err(WireError::Protocol("status of the welcome")),
        };
        Ok((version, welcome))
    }
}

impl Confirm {
    /// The message.
    #[must_use]
    pub fn encode(&self) -> [u8; CONFIRM_BYTES] {
        let mut out = [0; CONFIRM_BYTES];
        if let Some(proof) = &self.proof {
            out[..4].copy_from_slice(&IN_SCOPE.to_le_bytes());
            out[8..].copy_from_slice(proof);
        }
        out
    }

    /// Reads the message.
    #[must_use]
    pub fn decode(bytes: &[u8; CONFIRM_BYTES]) -> Self {
        let in_scope = u32::from_le_bytes(at(bytes, 0)) & IN_SCOPE != 0;
        Self { proof: in_scope.then(|| at(bytes, 8)) }
    }
}

/// The versions that a message names behind the magic.
fn begins_with(bytes: &[u8]) -> Result<Versions, WireError> {
    let magic = at(bytes, 0);
    if magic != MAGIC {
        return Err(WireError::Magic(magic));
    }
    Versions::decode(at(bytes, 4))
}

/// `N` bytes of a fixed message, whose callers know its length.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}
