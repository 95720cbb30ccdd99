//! The speeds of claim D8 on this machine, as one JSON document on standard output:
//!
//! ```text
//! cargo bench -p pageshare --bench speed
//! ```
//!
//! Rates are GiB (2^30 bytes) of stream or memory a second of *processor* time, user and system,
//! of the process that does it: a rate a core, whatever else the machine does. Each is the median
//! of `REPEATS`, with all of them beside it. `PAGESHARE_BINARY=FILE` measures another build's
//! proxies.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pageshare::sources::{SourceSpec, scan};
use pageshare_index::{PAGE_SIZE, ScopeKey};
use pageshare_stream::{Parser, RamWord, Step};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

const REPEATS: usize = 5;
/// Memory parsed and indexed, in pages: 256 MiB.
const PAGES: u64 = 1 << 16;
/// The stream that passes through both proxies, times [`PAGES`]: 2 GiB.
const PASSES: usize = 8;

fn main() {
    let channel = pages(PAGES);
    let parse = repeat(|| parse(&channel));
    let (scanned, share) = index();
    let (sender, receiver, wall) = pass_through(&channel);
    let result = json!({
        "version": 1,
        "unit": "GiB a second of processor time; wall: a second of time",
        "parse": rates(&parse),
        "index_scan": rates(&scanned),
        "index_memory_share": share,
        "pass_through_send": rates(&sender),
        "pass_through_receive": rates(&receiver),
        "pass_through_wall": rates(&wall),
    });
    println!("{result}");
}

/// A main channel of pages that differ and do not compress.
fn pages(count: u64) -> Vec<u8> {
    let mut channel = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for page in 0..count {
        let word = RamWord(RamWord::PAGE | RamWord::CONTINUE).plus_pages(page);
        channel.extend(word.to_bytes());
        for _ in 0..PAGE_SIZE / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            channel.extend(state.to_le_bytes());
        }
    }
    channel
}

fn repeat(mut once: impl FnMut() -> f64) -> Vec<f64> {
    (0..REPEATS).map(|_| once()).collect()
}

fn rates(samples: &[f64]) -> Value {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    json!({"median": sorted.get(sorted.len() / 2), "all": samples})
}

/// Processor seconds of this process.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
        .as_secs_f64()
}

#[allow(clippy::cast_precision_loss)] // Counts of bytes.
fn gib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// As the proxy parses: a segment at a time, which it has just read.
fn parse(channel: &[u8]) -> f64 {
    let begin = processor();
    let mut parser = Parser::new();
    let mut at = 0;
    while let Step::Token { length, .. } = parser.step(&channel[at..]) {
        at += length;
    }
    assert!(parser.verbatim().is_none() && at == channel.len());
    gib(at) / (processor() - begin)
}

/// Reads, hashes and tabulates another process's memory: this one's, through the same file.
fn index() -> (Vec<f64>, f64) {
    let memory = pages(PAGES);
    let key = ScopeKey([7; 32]).hash_key();
    let mut share = 0.0;
    let rates = repeat(|| {
        let begin = processor();
        let source = [SourceSpec::Pid(std::process::id())];
        let scanned = scan(&source, &key, 1).expect("this process may read itself");
        let taken = processor() - begin;
        let bytes = usize::try_from(scanned.bytes).expect("memory fits");
        assert!(bytes > memory.len());
        share = gib(scanned.library.bytes()) / gib(bytes);
        gib(bytes) / taken
    });
    (rates, share)
}

/// Both proxies with nothing asked and nothing compressed, between sockets of this program.
fn pass_through(channel: &[u8]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut sender, mut receiver, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let at = |name: &str| directory.path().join(name);
        let unix = |name: &str| format!("unix:{}", at(name).display());
        let qemu = UnixListener::bind(at("in")).expect("a fresh socket");
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback interface");
            free.local_addr().expect("a bound socket").port()
        };
        let wire = format!("tcp:127.0.0.1:{port}");
        let mut receive =
            proxy(directory.path(), &["receive", "--listen", &wire, "--qemu", &unix("in")]);
        let mut send = proxy(
            directory.path(),
            &[
                "send",
                "--listen",
                &unix("out"),
                "--to",
                &wire,
                "--ask",
                "never",
                "--compress",
                "never",
            ],
        );
        let mut source = connect(&at("out"));
        let begin = Instant::now();
        let took = std::thread::scope(|threads| {
            let sink = threads.spawn(|| {
                let (mut end, _) = qemu.accept().expect("the proxy connects");
                let mut buffer = vec![0; 1 << 20];
                let mut arrived = 0;
                loop {
                    let length = end.read(&mut buffer).expect("a half-close");
                    if length == 0 {
                        return arrived;
                    }
                    arrived += length;
                }
            });
            source.write_all(channel).expect("the proxy takes it");
            for _ in 1..PASSES {
                // Pages go on behind the first pass's header.
                source.write_all(&channel[29..]).expect("the proxy takes it");
            }
            source.shutdown(Shutdown::Write).expect("a connected socket");
            let arrived = sink.join().expect("the sink ends");
            assert_eq!(arrived, channel.len() + (PASSES - 1) * (channel.len() - 29));
            begin.elapsed().as_secs_f64()
        });
        let bytes = gib(channel.len() * PASSES);
        wall.push(bytes / took);
        sender.push(bytes / used(&mut send, &at("send.json")));
        receiver.push(bytes / used(&mut receive, &at("receive.json")));
    }
    (sender, receiver, wall)
}

fn proxy(directory: &Path, arguments: &[&str]) -> Child {
    let role = arguments[0];
    let built = env!("CARGO_BIN_EXE_pageshare").to_owned();
    Command::new(std::env::var("PAGESHARE_BINARY").unwrap_or(built))
        .args(arguments)
        .args(["--insecure", "--once", "--record"])
        .arg(directory.join(format!("{role}.json")))
        .env("PAGESHARE_LOG", "error")
        .stdin(Stdio::null())
        .spawn()
        .expect("the program starts")
}

/// Waits until the proxy listens.
fn connect(path: &Path) -> UnixStream {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processor seconds that a proxy has used, by its record.
fn used(proxy: &mut Child, record: &Path) -> f64 {
    assert!(proxy.wait().expect("our own child").success());
    let text = std::fs::read_to_string(record).expect("a record was written");
    let record: Value = serde_json::from_str(&text).expect("a record is JSON");
    record["process_cpu_seconds"].as_f64().expect("a number in the record")
}
