//! What tests of the wire share.

use pageshare_wire::Versions;
use pageshare_wire::hello::{Hello, MigrationId};

/// A greeting of who speaks these versions.
pub(crate) fn hello(versions: Versions) -> Hello {
    Hello {
        versions,
        migration: MigrationId([7; 16]),
        channel: 1,
        checksums: true,
        window: 1 << 20,
        nonce: [3; 32],
        scope: "tenant".into(),
    }
}
