//! What several channels of multifd carry through both proxies over loopback, as one JSON document on
//! standard output:
//!
//! ```text
//! PAGESHARE_PREVIOUS=FILE PAGESHARE_REPEATS=5 cargo bench -p pageshare --bench channels
//! ```
//!
//! Rates are GiB (2^30 bytes) of stream a second, from the first byte written to the last one that
//! arrived. A guest's memory passes `PASSES` times, in 1, 2 and 4 channels: with nothing asked, and
//! with every page asked for, so that from the second pass on each is found in the memory where it
//! arrived. This build and the one that `PAGESHARE_PREVIOUS` names, if it is given, take turns.
//! Nothing is compressed.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Instant;

use lab::stand_in::path;
use lab::{Proxy, Xorshift, binary, ports};
use serde_json::{Value, json};

const CHANNELS: [usize; 3] = [1, 2, 4];
/// What the guest's one RAM block holds: 128 MiB.
const RAM_BYTES: usize = 128 << 20;
const PASSES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// Pages of a packet, as QEMU fills it.
const TOGETHER: usize = 128;
/// QEMU aligns a guest's memory to this.
const ALIGNMENT: usize = 2 << 20;

fn main() {
    let repeats = std::env::var("PAGESHARE_REPEATS")
        .map_or(5, |text| text.parse::<usize>().expect("a number"));
    let previous = std::env::var("PAGESHARE_PREVIOUS").ok();
    let programs: Vec<&str> = [binary()].into_iter().chain(previous.as_deref()).collect();
    let mut random = Xorshift(7);
    let mut memory: Vec<u8> = Vec::with_capacity(RAM_BYTES + ALIGNMENT);
    memory.extend((0..memory.capacity() / 8).flat_map(|_| random.draw().to_le_bytes()));
    let from = memory.as_ptr().align_offset(ALIGNMENT);
    let ram = &memory[from..][..RAM_BYTES];

    let mut cells: Vec<Value> = Vec::new();
    for repeat in 0..repeats {
        for ask in ["never", "always"] {
            for channels in CHANNELS {
                for at in 0..programs.len() {
                    // Neither is always the first.
                    let program = (at + repeat) % programs.len();
                    let (rate, seconds) = carry(programs[program], channels, ask, ram);
                    let build = if program == 0 { "this" } else { "previous" };
                    cells.push(json!({
                        "build": build, "ask": ask, "channels": channels, "rate": rate,
                        "send_cpu_seconds": seconds[0], "receive_cpu_seconds": seconds[1],
                    }));
                }
            }
        }
    }
    println!("{}", json!({"version": 1, "unit": "GiB a second", "cells": cells}));
}

/// GiB a second through both proxies, and the processor seconds that each has used.
#[allow(clippy::cast_precision_loss)] // Counts of bytes.
fn carry(program: &str, channels: usize, ask: &str, ram: &[u8]) -> (f64, [Value; 2]) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| format!("unix:{}", directory.path().join(name).display());
    let (to, from, [port]) = (at("out"), at("in"), ports());
    let wire = format!("tcp:127.0.0.1:{port}");
    let qemu = UnixListener::bind(path(&from)).expect("a fresh socket");
    let start = |role: &str, words: &[&str]| {
        let words: Vec<String> =
            ["--once", "--insecure"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        Proxy::spawn(Command::new(program), directory.path(), role, &words)
    };
    // What arrives is not kept beside QEMU's memory, which is this program's.
    let pid = std::process::id().to_string();
    let words = ["--listen", &wire, "--qemu", &from, "--qemu-pid", &pid, "--recent", "0"];
    let mut receive = start("receive", &words);
    let words = ["--listen", &to, "--to", &wire, "--ask", ask, "--compress", "never"];
    let mut send = start("send", &[&words[..], &["--delta-cache", "0"]].concat());

    let mut main = connect(&to);
    main.write_all(&list_of_blocks()).expect("the proxy takes it");
    let (mut sink, _) = qemu.accept().expect("the proxy connects");
    let begin = Instant::now();
    let arrived: usize = std::thread::scope(|threads| {
        let sinks: Vec<_> = (0..channels)
            .map(|channel| {
                let to = &to;
                threads.spawn(move || write(&mut connect(to), ram, channel, channels));
                let (mut end, _) = qemu.accept().expect("the proxy connects");
                threads.spawn(move || read(&mut end))
            })
            .collect();
        sinks.into_iter().map(|sink| sink.join().expect("it ends")).sum()
    });
    let took = begin.elapsed().as_secs_f64();
    main.shutdown(Shutdown::Write).expect("a connected socket");
    read(&mut sink);
    drop(sink);
    assert!(arrived >= PASSES * RAM_BYTES, "{arrived} bytes: {}", receive.log());
    let records = [send.record(), receive.record()];
    for record in &records {
        assert_eq!(record["error"], json!(null), "{record}");
    }
    let found = records[1]["found_received"].as_u64();
    let later = ((PASSES - 1) * RAM_BYTES / PAGE_BYTES) as u64;
    assert!(ask == "never" || found > Some(later / 10 * 9), "{}", records[1]);
    let rate = arrived as f64 / f64::from(1 << 30) / took;
    (rate, records.map(|record| record["process_cpu_seconds"].clone()))
}

fn connect(to: &str) -> UnixStream {
    UnixStream::connect(path(to)).expect("the proxy listens")
}

/// The main channel's beginning: the guest has one block.
fn list_of_blocks() -> Vec<u8> {
    const MEM_SIZE: u64 = 4;
    const EOS: u64 = 16;
    let bytes = RAM_BYTES as u64;
    let mut main = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    main.extend((bytes | MEM_SIZE).to_be_bytes());
    main.extend(b"\x03ram");
    main.extend(bytes.to_be_bytes());
    main.extend(EOS.to_be_bytes());
    main
}

/// Writes a channel of multifd: every n-th packet of the guest's memory, several times.
fn write(to: &mut UnixStream, ram: &[u8], channel: usize, channels: usize) {
    let begins = [0x1122_3344_u32, 1].map(u32::to_be_bytes).concat();
    let mut hello = begins.clone();
    hello.resize(64, 0);
    to.write_all(&hello).expect("the proxy takes it");
    let packets = ram.chunks_exact(TOGETHER * PAGE_BYTES).enumerate();
    for _ in 0..PASSES {
        for (number, pages) in packets.clone().skip(channel).step_by(channels) {
            let [count, bytes] =
                [TOGETHER, pages.len()].map(|it| u32::try_from(it).expect("it fits"));
            let mut packet = begins.clone();
            packet.extend([0, count, count, bytes].map(u32::to_be_bytes).concat());
            packet.resize(64, 0);
            packet.extend(b"ram");
            packet.resize(64 + 256, 0);
            let first = number * TOGETHER;
            let offsets = (first..first + TOGETHER).map(|page| (page * PAGE_BYTES) as u64);
            packet.extend(offsets.flat_map(u64::to_be_bytes));
            packet.extend_from_slice(pages);
            to.write_all(&packet).expect("the proxy takes it");
        }
    }
    to.shutdown(Shutdown::Write).expect("a connected socket");
    // The proxy closes once it has passed all on.
    let _ = to.read_to_end(&mut Vec::new());
}

/// Reads to the end; how many bytes.
fn read(from: &mut UnixStream) -> usize {
    let mut buffer = vec![0; 1 << 20];
    let mut arrived = 0;
    loop {
        match from.read(&mut buffer).expect("a half-close") {
            0 => return arrived,
            length => arrived += length,
        }
    }
}
