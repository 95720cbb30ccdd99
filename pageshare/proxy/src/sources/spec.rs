//! How an operator names a source.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::select::Selector;

/// One source, or a rule for finding some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// The memory of every QEMU process that may be read.
    AllQemus,
    /// The memory of those QEMU processes.
    Qemus(Selector),
    /// The memory of one process.
    Pid(u32),
    /// An image file, raw or qcow2. Of a chain of images, each has to be named.
    Image(PathBuf),
}

impl FromStr for SourceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "qemu" => {
                Err("`qemu` would show every VM of this host to whoever holds \
                 the scope: say which are the tenant's (qemu:name=PATTERN, qemu:uuid=PATTERN, \
                 qemu:user=USER, qemu:cgroup=PATTERN, qemu:image=PATTERN, or several of them with \
                 commas), or qemu:all"
                    .to_owned())
            }
            Some(("qemu", "all")) => Ok(Self::AllQemus),
            Some(("qemu", selector)) => selector.parse().map(Self::Qemus),
            Some(("pid", pid)) => {
                pid.parse().map(Self::Pid).map_err(|_| format!("`{pid}` is no process id"))
            }
            Some(("image", path)) if !path.is_empty() => Ok(Self::Image(PathBuf::from(path))),
            _ => Err(format!(
                "`{text}` is no source: write qemu:SELECTOR, qemu:all, pid:NUMBER or image:PATH"
            )),
        }
    }
}

impl fmt::Display for SourceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllQemus => f.write_str("qemu:all"),
            Self::Qemus(selector) => write!(f, "qemu:{selector}"),
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
        for text in ["qemu:all", "qemu:name=a-*,user=0", "pid:17", "image:/srv/debian 12.qcow2"] {
            assert_eq!(text.parse::<SourceSpec>().unwrap().to_string(), text);
        }
        for text in ["", "qemu:", "qemu:a-*", "pid:", "pid:x", "image:", "kvm"] {
            assert!(text.parse::<SourceSpec>().is_err(), "{text}");
        }
        assert!("qemu".parse::<SourceSpec>().unwrap_err().contains("say which"));
    }
}
