//! Builds the guest's initramfs: busybox, a script, and data that all guests have alike.

use std::path::Path;

use super::xorshift::Xorshift;

/// MiB of data that are the same in every guest.
const ALIKE_MIB: usize = 8;

/// What the guest does: obeys commands of one word on its console, or two.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /own
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs own /own
exec </dev/ttyS0 >/dev/ttyS0 2>&1
/bin/busybox stty -echo
/bin/busybox dd if=/dev/urandom of=/own/data bs=1M count=8 2>/dev/null
echo READY
while read command word; do
    case "$command" in
    sum) echo "SUM $(/bin/busybox cat /alike /own/data | /bin/busybox sha256sum)" ;;
    dirty)
        round=0
        while :; do
            /bin/busybox dd if=/dev/urandom of=/own/dirty bs=64k count=32 conv=notrunc 2>/dev/null
            round=$((round + 1))
            echo $round > /own/round
            /bin/busybox usleep 50000
        done &
        echo DIRTYING ;;
    round) echo "ROUND $(/bin/busybox cat /own/round)" ;;
    "") ;;
    ping) echo PONG ;;
    copy) /bin/busybox cp /own/data /own/copy; echo COPIED ;;
    tick)
        /bin/busybox dd if=/dev/urandom of=/own/ticks bs=4k count=64 2>/dev/null
        while :; do
            page=0
            while [ $page -lt 64 ]; do
                echo $page > /own/tick
                /bin/busybox dd if=/own/tick of=/own/ticks bs=8 seek=$((page * 512)) conv=notrunc \
                    2>/dev/null
                page=$((page + 1))
            done
        done &
        echo TICKING ;;
    own) /bin/busybox seq -s " $word " 1 600000 > /own/more; echo FILLED ;;
    edit)
        page=0
        while [ $page -lt 96 ]; do
            echo "edit $page" | /bin/busybox dd of=/own/more bs=16 seek=$((page * 256)) \
                conv=notrunc 2>/dev/null
            page=$((page + 1))
        done
        echo EDITED ;;
    more) echo "SUM $(/bin/busybox sha256sum /own/more)" ;;
    random) /bin/busybox dd if=/dev/urandom of=/own/more bs=1M count=12 2>/dev/null; echo FILLED ;;
    esac
done
"#;

/// Writes the archive.
pub fn build(path: &Path) {
    let busybox = super::required("/bin/busybox", "busybox-static");
    let busybox = std::fs::read(busybox).expect("busybox is readable");
    let mut archive = Vec::new();
    for (number, (name, mode, content)) in [
        ("bin", 0o040_755, &[][..]),
        ("dev", 0o040_755, &[][..]),
        ("bin/busybox", 0o100_755, &busybox[..]),
        ("init", 0o100_755, INIT.as_bytes()),
        ("alike", 0o100_644, &alike()[..]),
        ("TRAILER!!!", 0, &[][..]),
    ]
    .into_iter()
    .enumerate()
    {
        entry(&mut archive, number, name, mode, content);
    }
    std::fs::write(path, archive).expect("the scratch directory is writable");
}

/// One entry of the `newc` format.
fn entry(archive: &mut Vec<u8>, number: usize, name: &str, mode: u32, content: &[u8]) {
    archive.extend(b"070701");
    let fields = [number, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
    for field in fields {
        archive.extend(format!("{field:08x}").bytes());
    }
    archive.extend(name.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

/// Bytes that do not compress.
fn alike() -> Vec<u8> {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    let mut out = Vec::with_capacity(ALIKE_MIB << 20);
    while out.len() < ALIKE_MIB << 20 {
        out.extend(random.draw().to_le_bytes());
    }
    out
}
