//! A link over a distance: each byte arrives a fixed time after it was sent, as many as come.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Passes every connection on to port `to`; a round trip takes so long.
pub fn stretch(listener: TcpListener, to: u16, round_trip: Duration) {
    let one_way = round_trip / 2;
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            // Who connects sees a closed connection when there is nobody to pass on to.
            let Ok(to) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let again = |end: &TcpStream| {
                end.set_nodelay(true).expect("a connected socket");
                end.try_clone().expect("a file descriptor")
            };
            let back = (again(&to), again(&from));
            pass(from, to, one_way);
            pass(back.0, back.1, one_way);
        }
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (sent, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sent.send((Instant::now() + one_way, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in arriving {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
