//! How an operator names a source.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One source, or a rule for finding some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// The memory of every QEMU process that may be read.
    AllQemus,
    /// The memory of one process.
    Pid(u32),
    /// An image file, raw or qcow2. Of a chain of images, each has to be named.
    Image(PathBuf),
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "qemu" => Ok(Self::AllQemus),
            Some(("pid", pid)) => {
                pid.parse().map(Self::Pid).map_err(|_| format!("`{pid}` is no process id"))
            }
            Some(("image", path)) if !path.is_empty() => Ok(Self::Image(PathBuf::from(path))),
            _ => Err(format!("`{text}` is no source: write qemu, pid:NUMBER or image:PATH")),
        }
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllQemus => f.write_str("qemu"),
            Self::Pid(pid) => write!(f, "pid:{pid}"),
            Self::Image(path) => write!(f, "image:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_back() {
        for text in ["qemu", "pid:17", "image:/srv/debian 12.qcow2"] {
            assert_eq!(text.parse::<SourceSpec>().unwrap().to_string(), text);
        }
        for text in ["", "pid:", "pid:x", "image:", "kvm"] {
            assert!(text.parse::<SourceSpec>().is_err(), "{text}");
        }
    }
}
