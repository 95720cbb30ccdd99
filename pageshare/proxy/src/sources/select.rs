//! Which of a host's QEMUs are meant: those whose memory one tenant may ask for.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use glob::Pattern;

use crate::command_line;

/// What a QEMU must be; all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    conditions: Vec<Condition>,
    /// As it was written.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    /// The guest's name, of `-name`.
    Name(Pattern),
    /// The guest's UUID, of `-uuid`.
    Uuid(Pattern),
    /// The user as whom it runs.
    User(u32),
    /// Its control group or one around it: by path or, without a slash, by name.
    Cgroup(Pattern),
    /// A file that it has open.
    Image(Pattern),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let conditions = text.split(',').map(condition).collect::<Result<_, _>>()?;
        Ok(Self { conditions, text: text.to_owned() })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (what, value) = text.split_once('=').unwrap_or((text, ""));
    if value.is_empty() {
        return Err(format!(
            "`{text}`: write name=, uuid=, user=, cgroup= or image=, and a pattern"
        ));
    }
    let pattern = || Pattern::new(value).map_err(|error| format!("`{value}`: {error}"));
    match what {
        "name" => pattern().map(Condition::Name),
        "uuid" => pattern().map(Condition::Uuid),
        "user" => user(value).map(Condition::User),
        "cgroup" => pattern().map(Condition::Cgroup),
        "image" => pattern().map(Condition::Image),
        _ => {
            Err(format!("`{what}` is nothing to select by: name, uuid, user, cgroup and image are"))
        }
    }
}

/// A user's number, from a number or a name.
fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(text)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| format!("/etc/passwd has no user `{text}`: give its number"))
}

impl Selector {
    /// Whether process `pid`, a QEMU, is meant. One of which that cannot be told is not.
    pub(super) fn takes(&self, pid: u32) -> bool {
        let of = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        self.conditions.iter().all(|condition| match condition {
            Condition::Name(pattern) => {
                command_line::name(pid).is_some_and(|name| pattern.matches(&name))
            }
            Condition::Uuid(pattern) => {
                command_line::uuid(pid).is_some_and(|uuid| pattern.matches(&uuid))
            }
            Condition::User(number) => owner(&of("status")) == Some(*number),
            Condition::Cgroup(pattern) => {
                is_below(&String::from_utf8_lossy(&of("cgroup")), pattern)
            }
            Condition::Image(pattern) => opens(pid, pattern),
        })
    }
}

/// The effective user in `/proc/PID/status`.
fn owner(status: &[u8]) -> Option<u32> {
    let status = String::from_utf8_lossy(status);
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

/// Whether one of the groups in `/proc/PID/cgroup`, or one around it, is meant.
fn is_below(groups: &str, pattern: &Pattern) -> bool {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let by_path = pattern.as_str().contains('/');
    paths.flat_map(|path| Path::new(path).ancestors()).any(|group| match group.file_name() {
        _ if by_path => pattern.matches_path(group),
        Some(name) => name.to_str().is_some_and(|name| pattern.matches(name)),
        None => false,
    })
}

/// Whether a process has such a file open.
fn opens(pid: u32, pattern: &Pattern) -> bool {
    let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|file| file.is_absolute() && pattern.matches_path(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_read_back_and_what_selects_nothing_is_refused() {
        for text in ["name=web*", "uuid=4dea22b3-*,user=0", "cgroup=tenant-a.slice,image=/srv/a/*"]
        {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for text in ["", "name", "name=", "name=a,", "user=no body", "port=1", "name=[", "=a"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_group_is_meant_with_all_that_is_in_it_and_nothing_that_only_begins_like_it() {
        let groups = "1:cpu:/\n0::/machine.slice/tenant-a.slice/web1.scope\n";
        for meant in
            ["tenant-a.slice", "/machine.slice/tenant-a.slice", "*/web1.scope", "web?.scope"]
        {
            assert!(is_below(groups, &Pattern::new(meant).unwrap()), "{meant}");
        }
        for other in ["tenant", "tenant-a", "/tenant-a.slice", "tenant-b.slice", "/machine"] {
            assert!(!is_below(groups, &Pattern::new(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn this_process_is_known_by_its_user_and_its_files_and_by_no_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pid = std::process::id();
        let takes = |text: String| text.parse::<Selector>().unwrap().takes(pid);
        let user = owner(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        let image = file.path().display();
        assert!(takes(format!("user={user},image={image}")));
        assert!(!takes(format!("user={},image={image}", user + 1)));
        assert!(!takes(format!("user={user},image={image}.other")));
        assert!(!takes(format!("user={user},name=*")), "it is no QEMU");
        assert!(!"user=0".parse::<Selector>().unwrap().takes(u32::MAX), "it is not there");
    }
}
