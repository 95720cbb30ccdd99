//! What a QEMU was started with, as far as anybody else can see.
//!
//! What its monitor was told since cannot be seen: `stop` has the effect of `-S`.

/// Whether process `pid`, a QEMU, lets a guest that has come to it run by itself: it was started
/// without `-S`. One that is gone or not ours was not.
pub(crate) fn starts_by_itself(pid: u32) -> bool {
    let line = words(pid);
    !line.is_empty() && !line.iter().any(|word| matches!(word.as_str(), "-S" | "--S"))
}

/// Whether a guest may come to process `pid` by migration: it was started with `-incoming`, or what it
/// was started with cannot be told, as of one that has just replaced another program.
pub(crate) fn may_receive(pid: u32) -> bool {
    receives(&words(pid))
}

fn receives(words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| matches!(word.as_str(), "-incoming" | "--incoming"))
}

/// The name that process `pid`, a QEMU, was given.
pub(crate) fn name(pid: u32) -> Option<String> {
    name_in(&words(pid))
}

/// The UUID that process `pid`, a QEMU, was given.
pub(crate) fn uuid(pid: u32) -> Option<String> {
    option(&words(pid), "uuid").map(str::to_owned)
}

fn words(pid: u32) -> Vec<String> {
    split(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
}

/// As /proc has it: every word ends with a zero byte.
fn split(line: &[u8]) -> Vec<String> {
    let words = line.strip_suffix(&[0]).unwrap_or(line);
    let words = words.split(|byte| *byte == 0).filter(|_| !line.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The value of an option, of the last one if there are several, as QEMU takes it.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let is_it = |word: &String| word.starts_with('-') && word.trim_start_matches('-') == name;
    let at = words.iter().rposition(is_it)?;
    words.get(at + 1).map(String::as_str)
}

fn name_in(words: &[String]) -> Option<String> {
    let mut options = option(words, "name")?.split(',');
    let first = options.next()?;
    let guest = std::iter::once(first).chain(options).find_map(|it| it.strip_prefix("guest="));
    guest.or((!first.contains('=')).then_some(first)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_word_counts() {
        let words = split(b"qemu-system-x86_64\0-S\0-name\0web1\0");
        assert_eq!(words, ["qemu-system-x86_64", "-S", "-name", "web1"]);
        assert!(split(b"").is_empty());
    }

    #[test]
    fn a_process_that_is_gone_warns_nobody() {
        assert!(!starts_by_itself(u32::MAX));
        assert!(starts_by_itself(std::process::id()));
    }

    #[test]
    fn a_guest_may_come_to_whoever_was_told_to_await_one() {
        for word in ["-incoming", "--incoming"] {
            assert!(receives(&["qemu", "-S", word, "defer"].map(str::to_owned)), "{word}");
        }
        for word in ["incoming", "-incoming=defer", "---incoming", "-loadvm"] {
            assert!(!receives(&["qemu", "-S", word, "defer"].map(str::to_owned)), "{word}");
        }
        assert!(may_receive(u32::MAX) && !may_receive(std::process::id()));
    }

    #[test]
    fn a_guest_is_named_in_either_of_qemus_ways() {
        let named = |word: &str| name_in(&["qemu", "-name", word].map(str::to_owned));
        assert_eq!(named("web1").as_deref(), Some("web1"));
        assert_eq!(named("web1,debug-threads=on").as_deref(), Some("web1"));
        assert_eq!(named("debug-threads=on,guest=web1").as_deref(), Some("web1"));
        assert_eq!(named("debug-threads=on"), None);
        let twice = ["-name", "a", "--name", "debug-threads=on,guest=b", "name", "c"];
        assert_eq!(name_in(&twice.map(str::to_owned)).as_deref(), Some("b"));
        assert_eq!(name_in(&["qemu".into(), "name".into(), "a".into()]), None);
    }
}
