//! Whether a QEMU that awaits a migration lets the guest run by itself once it has loaded.

/// Whether process `pid`, a QEMU, was started without `-S`. One that is gone or not ours was not.
///
/// What its monitor was told since cannot be seen: `stop` has the effect of `-S`.
pub(super) fn starts_by_itself(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| lacks_stop(&line))
}

/// As /proc has it: every argument ends with a zero byte.
fn lacks_stop(line: &[u8]) -> bool {
    !line.is_empty() && !line.split(|byte| *byte == 0).any(|word| matches!(word, b"-S" | b"--S"))
}

#[cfg(test)]
mod tests {
    use super::lacks_stop;

    #[test]
    fn only_the_whole_option_counts() {
        assert!(!lacks_stop(b"qemu-system-x86_64\0-S\0-incoming\0defer\0"));
        assert!(lacks_stop(b"qemu-system-x86_64\0-Serial\0-incoming\0defer\0"));
    }

    #[test]
    fn a_process_that_is_gone_warns_nobody() {
        assert!(!lacks_stop(b""));
    }
}
