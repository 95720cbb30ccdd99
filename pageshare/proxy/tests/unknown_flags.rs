//! What a QEMU of tomorrow writes that nobody knows here: it arrives as it was sent, and an operator
//! sees how much of it saved nothing, from where on, and why.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};

use pageshare::inspect::inspect;
use pageshare_stream::{Parser, RamWord, Step, Token, reference};

use crate::golden_streams;
use crate::lab::stand_in::path;
use crate::lab::{self, Pair, ports};

/// No QEMU gives this flag of a RAM word, or of a multifd packet, a meaning.
const UNKNOWN: u16 = 0x400;

/// What the newest QEMU wrote, but for a flag of its fiftieth page; where that stands, and its word.
fn tomorrow() -> (Vec<u8>, usize, RamWord) {
    let mut stream = golden_streams::stream("qemu-11.1-precopy");
    let (mut parser, mut at, mut pages) = (Parser::new(), 0, 0);
    while let Step::Token { token, length } = parser.step(&stream[at..]) {
        if let Token::Page(word) = token {
            pages += 1;
            if pages == 50 {
                let word = RamWord(word.0 | u64::from(UNKNOWN));
                stream[at..at + 8].copy_from_slice(&word.to_bytes());
                return (stream, at, word);
            }
        }
        at += length;
    }
    panic!("{pages} pages");
}

fn scrape(port: u16) -> String {
    let mut scraper = TcpStream::connect(("127.0.0.1", port)).expect("the metrics are served");
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a connected socket");
    let mut answer = String::new();
    scraper.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn a_flag_that_nobody_knows_arrives_and_what_it_costs_is_counted() {
    let ports: [u16; 2] = ports();
    let [sends, receives] = ports.map(|port| format!("tcp:127.0.0.1:{port}"));
    let mut pair = Pair::unix(&["--metrics", &sends], &["--metrics", &receives]);
    let (stream, at, word) = tomorrow();
    let unread = stream.len() - at;

    let destination = UnixListener::bind(path(&pair.from)).expect("a fresh socket");
    let mut source = UnixStream::connect(path(&pair.to)).expect("the proxy listens");
    std::thread::scope(|threads| {
        threads.spawn(|| source.write_all(&stream).expect("the proxy takes it"));
        let (mut end, _) = destination.accept().expect("the proxy connects");
        let mut arrived = vec![0; stream.len()];
        end.read_exact(&mut arrived).expect("all of it");
        assert!(arrived == stream);
        // While the migration is under way, too.
        for port in ports {
            lab::wait_for("the metrics to count what was not read", || {
                let answer = scrape(port);
                let count = |line: &str| {
                    line.strip_prefix("pageshare_verbatim_bytes_total{")
                        .is_some_and(|rest| rest.ends_with(&format!("}} {unread}")))
                };
                answer.lines().any(count).then_some(())
            });
        }
        end.shutdown(Shutdown::Write).expect("a connected socket");
    });
    source.shutdown(Shutdown::Write).expect("a connected socket");

    let why = format!("RAM word {:#x}", word.0);
    for proxy in [&mut pair.send, &mut pair.receive] {
        let record = proxy.record();
        assert_eq!(record["verbatim_bytes"], unread, "{record}");
        assert_eq!(record["verbatim"][0]["at"], at, "{record}");
        assert_eq!(record["verbatim"][0]["hides_pages"], true, "{record}");
        assert_eq!(record["verbatim"][0]["why"], why, "{record}");
        let log = proxy.log();
        let line = log.lines().find(|line| line.contains("is passed on unread"));
        let line = line.unwrap_or_else(|| panic!("nothing is said: {log}"));
        assert!(line.contains(&format!("from byte {at} on")) && line.contains(&why), "{line}");
    }
}

#[test]
fn a_packet_with_a_flag_that_nobody_knows_is_verbatim_from_there() {
    const HELLO: usize = 64;
    const FLAGS: usize = HELLO + 10;
    let mut channel = golden_streams::stream("qemu-11.1-multifd-channel-1");
    let [high, low] = UNKNOWN.to_be_bytes();
    channel[FLAGS] |= high;
    channel[FLAGS + 1] |= low;
    let file = tempfile::NamedTempFile::new().expect("a scratch file");
    std::fs::write(file.path(), &channel).expect("a scratch file");
    let inspection = inspect(file.path()).expect("it is there");
    let (at, why) = inspection.verbatim.expect("a flag that nobody knows");
    assert_eq!((at, inspection.verbatim_bytes), (HELLO as u64, (channel.len() - HELLO) as u64));
    assert!(why.starts_with("multifd packet flags 0x4"), "{why}");
    assert_eq!(reference::parse(&channel).1, HELLO);
}
