//! Where to listen and connect: `unix:PATH` or `tcp:HOST:PORT`, as QEMU and libvirt write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket's path.
    Unix(PathBuf),
    /// A host and a port, with IPv6 hosts in brackets.
    Tcp(String),
}

/// Text that is no address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoAddress {
    /// Of neither kind.
    #[error(
        "`{0}` is no address: write unix:/path/of/socket or tcp:HOST:PORT, IPv6 as tcp:[::1]:PORT"
    )]
    Unknown(String),
    /// A path that the kernel takes for no socket.
    #[error("`{0}` is too long: the path of a Unix socket has at most 107 bytes")]
    TooLong(String),
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let no_address = || NoAddress::Unknown(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(no_address)?;
        match kind {
            "unix" if rest.len() > 107 => Err(NoAddress::TooLong(text.to_owned())),
            "unix" if !rest.is_empty() => Ok(Self::Unix(PathBuf::from(rest))),
            "tcp" => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(no_address)?;
                let inner = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
                let named = inner.is_some() || !host.is_empty() && !host.contains(['[', ':', ']']);
                let sound = named && port.parse::<u16>().is_ok();
                sound.then(|| Self::Tcp(rest.to_owned())).ok_or_else(no_address)
            }
            _ => Err(no_address()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host_and_port) => write!(f, "tcp:{host_and_port}"),
        }
    }
}

impl Address {
    /// The host alone, for a TCP address: the name that its certificate must bear. A zone is this host's
    /// name of a way there, and in no certificate.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(text) => {
                let (host, _) = text.rsplit_once(':')?;
                let host = host.trim_start_matches('[').trim_end_matches(']');
                Some(host.split_once('%').map_or(host, |(host, _)| host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in ["unix:/run/vm.sock", "tcp:10.0.0.2:4455", "tcp:[::1]:4455", "tcp:host:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let host = |text: &str| text.parse::<Address>().unwrap().host().map(str::to_owned);
        assert_eq!(host("tcp:[::1]:4455").as_deref(), Some("::1"));
        assert_eq!(host("tcp:[fe80::1%eth0]:4455").as_deref(), Some("fe80::1"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "unix:", "tcp:host", "tcp:host:port", "tcp::1", "host:4455", "/a/path"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        // Where the port begins would be a guess.
        for text in ["tcp:::1", "tcp:fe80::1:4455", "tcp:[::1:4455", "tcp:::1]:4455"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let path = |bytes: usize| format!("unix:{}", "p".repeat(bytes)).parse::<Address>();
        assert!(path(107).is_ok());
        assert!(path(108).unwrap_err().to_string().contains("at most 107 bytes"));
    }
}
