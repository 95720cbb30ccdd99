//! The two sides of the handshake, over a link.

use std::time::{Duration, Instant};

use pageshare_index::{HashKey, ScopeKey};
use pageshare_wire::hello::{
    CONFIRM_BYTES, Confirm, HELLO_BYTES, Hello, MigrationId, Side, WELCOME_BYTES, Welcome,
    oldest_of, proof, same_proof,
};
use pageshare_wire::{Versions, WireError};
use tracing::warn;

use crate::error::Error;
use crate::link::Link;
use crate::scope::Scope;

/// What both sides agreed on.
#[derive(Debug)]
pub struct Agreed {
    /// Version of the protocol.
    pub version: u16,
    /// Which migration the channel belongs to.
    pub migration: MigrationId,
    /// Its number within it.
    pub channel: u32,
    /// Expanded bytes in flight, at most.
    pub window: u32,
    /// What a message and its answer took.
    pub round_trip: Duration,
    /// The key to hash pages with.
    pub hash_key: HashKey,
    /// Name of the scope, if both hold it.
    pub scope: Option<String>,
}

/// Random bytes from the system.
///
/// # Errors
/// If it gives none.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Refused(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

/// The sender's side. A receiver that does not hold the scope is no error: the migration goes on
/// with what it can share within itself.
///
/// # Errors
/// If the peer refuses, is something else, or does not answer.
pub fn send(
    link: &mut Link,
    migration: MigrationId,
    channel: u32,
    window: u32,
    scope: Option<&Scope>,
    versions: Versions,
) -> Result<Agreed, Error> {
    let hello = Hello {
        versions,
        migration,
        channel,
        checksums: link.checksums(),
        window,
        nonce: random()?,
        scope: scope.map(|scope| scope.name.clone()).unwrap_or_default(),
    };
    let begin = Instant::now();
    link.writer.write(&[&hello.encode()])?;
    let mut answer = [0; WELCOME_BYTES];
    link.reader.fill(&mut answer)?;
    let round_trip = begin.elapsed();
    let (version, welcome) = Welcome::decode(&answer, versions)?;
    let (in_scope, offered, nonce, theirs) = match welcome {
        Welcome::Accepted { in_scope, window, nonce, proof } => (in_scope, window, nonce, proof),
        Welcome::Refused(reason) => return Err(WireError::Refused(reason).into()),
    };
    let shared = scope.filter(|scope| {
        let right = |scope: &Scope| proof(&scope.key, Side::Receiver, &hello, version, &nonce);
        let holds = in_scope && same_proof(&theirs, &right(scope));
        if !holds {
            let why = if in_scope { "has another key for" } else { "does not serve" };
            warn!("the receiver {why} scope `{}`; going on without its pages", scope.name);
        }
        holds
    });
    let ours = shared.map(|scope| proof(&scope.key, Side::Sender, &hello, version, &nonce));
    link.writer.write(&[&Confirm { proof: ours }.encode()])?;
    link.reader.lift_deadline()?;
    Ok(Agreed {
        version,
        migration,
        channel,
        window: window.min(offered),
        round_trip,
        hash_key: hash_key(shared.map(|scope| &scope.key), migration),
        scope: shared.map(|scope| scope.name.clone()),
    })
}

/// The receiver's side, which answers in any of these scopes. The link's deadline stays: the sender may
/// have shown nothing yet.
///
/// # Errors
/// If the peer is no sender, speaks none of these versions, claims a scope whose key it has not, or is silent.
pub fn receive<'a>(
    link: &mut Link,
    window: u32,
    mut scopes: impl Iterator<Item = &'a Scope>,
    versions: Versions,
) -> Result<Agreed, Error> {
    let mut greeting = [0; HELLO_BYTES];
    link.reader.fill(&mut greeting)?;
    let refuse = |reason: &str| {
        // The peer may not wait for the reason.
        let refusal = Welcome::Refused(reason.to_owned()).encode(oldest_of(&greeting));
        let _ = link.writer.write(&[&refusal]);
        Error::Refused(reason.to_owned())
    };
    let (version, hello) =
        Hello::decode(&greeting, versions).map_err(|error| refuse(&error.to_string()))?;
    if hello.checksums != link.checksums() {
        return Err(refuse("one side uses TLS and the other does not"));
    }
    let scope = scopes.find(|scope| scope.name == hello.scope);
    let nonce = random()?;
    let ours = scope.map(|scope| proof(&scope.key, Side::Receiver, &hello, version, &nonce));
    let welcome = Welcome::Accepted {
        in_scope: scope.is_some(),
        window,
        nonce,
        proof: ours.unwrap_or_default(),
    };
    let begin = Instant::now();
    link.writer.write(&[&welcome.encode(version)])?;
    let mut answer = [0; CONFIRM_BYTES];
    link.reader.fill(&mut answer)?;
    let round_trip = begin.elapsed();
    let shared = match (Confirm::decode(&answer).proof, scope) {
        (None, _) => None,
        (Some(theirs), Some(scope))
            if same_proof(&theirs, &proof(&scope.key, Side::Sender, &hello, version, &nonce)) =>
        {
            Some(scope)
        }
        (Some(_), _) => return Err(WireError::Protocol("proof of the scope").into()),
    };
    Ok(Agreed {
        version,
        migration: hello.migration,
        channel: hello.channel,
        window: window.min(hello.window),
        round_trip,
        hash_key: hash_key(shared.map(|scope| &scope.key), hello.migration),
        scope: shared.map(|scope| scope.name.clone()),
    })
}

fn hash_key(shared: Option<&ScopeKey>, migration: MigrationId) -> HashKey {
    shared.map_or_else(|| migration.hash_key(), ScopeKey::hash_key)
}
