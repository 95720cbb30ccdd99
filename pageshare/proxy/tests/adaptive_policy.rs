//! Compression goes on where the link is what holds the migration up: no QEMU needed. What a fast
//! link does to it depends on the machine's load; a model in `pageshare-wire` tries that.

use crate::lab;

use lab::stand_in::through;
use lab::{Pair, Xorshift};

/// A stream of pages that differ, each of which compresses to about a quarter.
fn stream(pages: u64) -> Vec<u8> {
    let mut out = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for page in 0..pages {
        out.extend((page * 4096 + 0x28).to_be_bytes());
        for word in 0..512 {
            let drawn = random.draw();
            out.extend(if word % 4 == 0 { drawn } else { page }.to_le_bytes());
        }
    }
    out
}

#[test]
fn a_slow_link_is_compressed_for_although_sockets_take_bursts_at_memory_speed() {
    // At most 131 MB/s, whatever the machine does meanwhile.
    let mut pair = Pair::slow(64 << 10);
    let stream = stream(16_000);
    let (arrived, _) = through(&pair, &stream, &[]);
    assert!(arrived == stream, "{} of {} bytes", arrived.len(), stream.len());
    let record = pair.send.record();
    let compressed = record["compressed_from"].as_u64().expect("a number");
    // The rest showed what the link is without.
    assert!(
        compressed > stream.len() as u64 * 8 / 10,
        "{compressed} of {}: {record}",
        stream.len()
    );
}
