//! Scopes: who may ask for what. A scope is a file that both hosts have, readable by nobody else.

use std::path::Path;

use pageshare_index::ScopeKey;
use pageshare_wire::hello::SCOPE_NAME_BYTES;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::handshake::random;

/// A tenant, a set of public images, or whatever else trusts itself: within it, a sender may learn
/// which pages the receiver has.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Its name, the same on both hosts.
    pub name: String,
    /// Its secret, the same on both hosts.
    pub key: ScopeKey,
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeFile {
    scope: String,
    key: String,
}

impl Scope {
    /// A scope with a fresh random key.
    ///
    /// # Errors
    /// If the name is empty or too long, or the system gives no randomness.
    pub fn generate(name: &str) -> Result<Self, Error> {
        check_name(name).map_err(Error::Refused)?;
        Ok(Self { name: name.to_owned(), key: ScopeKey(random()?) })
    }

    /// Reads a scope's file.
    ///
    /// # Errors
    /// If it cannot be read, others can read it too, or it is no scope.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let unusable = |reason: String| Error::File {
            what: "scope",
            path: path.display().to_string(),
            reason,
        };
        let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
        if is_public(path) {
            return Err(unusable(
                "others can read it, and whoever can read it can ask; \
                                 chmod 600 it"
                    .into(),
            ));
        }
        let file: ScopeFile =
            serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        check_name(&file.scope).map_err(unusable)?;
        let key = from_hex(&file.key)
            .ok_or_else(|| unusable("its key is not 64 hexadecimal digits".into()))?;
        Ok(Self { name: file.scope, key: ScopeKey(key) })
    }

    /// Writes a new file that only its owner can read.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let key = self.key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = ScopeFile { scope: self.name.clone(), key };
        let write = || {
            let mut out =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            writeln!(out, "{}", serde_json::to_string_pretty(&file)?).inspect_err(|_| {
                // What a full disk has taken of it is no scope, and in the way of the next.
                let _ = std::fs::remove_file(path);
            })
        };
        write().map_err(|error: std::io::Error| Error::File {
            what: "scope",
            path: path.display().to_string(),
            reason: match error.kind() {
                std::io::ErrorKind::AlreadyExists => {
                    "it is there already, and a key that is lost cannot be had again; name another \
                     file, or remove it"
                        .into()
                }
                _ => error.to_string(),
            },
        })
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > SCOPE_NAME_BYTES || name.contains('\0') {
        return Err(format!("a scope's name has 1 to {SCOPE_NAME_BYTES} bytes, `{name}` has not"));
    }
    Ok(())
}

fn is_public(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let sound = text.len() == 64 && text.is_ascii();
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(sound.then(|| text.get(at..at + 2))??, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_scope_reads_back_and_one_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tenant.json");
        let scope = Scope::generate("tenant").unwrap();
        scope.save(&path).unwrap();
        let read = Scope::load(&path).unwrap();
        assert_eq!((read.name.as_str(), &read.key), ("tenant", &scope.key));
        assert!(scope.save(&path).is_err(), "a scope is never overwritten");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Scope::load(&path).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn keys_are_64_digits() {
        assert_eq!(from_hex(&"0f".repeat(32)), Some([15; 32]));
        for text in ["", "0f", &"0g".repeat(32), &"é".repeat(32)] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
