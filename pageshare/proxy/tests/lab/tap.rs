//! A listener on the way of a migration stream: notes what passes, and can hold back the
//! destination's last word.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::wait_for;

/// What passed forward on one connection: how many bytes, and their hash.
pub type Passed = (u64, String);

/// How the message begins by which the destination says that it has loaded everything.
const SHUT: &[u8] = &[0, 1];
/// The one by which it says, from QEMU 10.2 on, that it has loaded the devices in postcopy.
const LOADED: &[u8] = &[0, 2, 0, 4, 0, 0, 0, 0x42];

#[derive(Default)]
struct Seen {
    passed: Vec<Passed>,
    /// Hold back [`SHUT`] or [`LOADED`], and what follows it.
    hold: bool,
    held: bool,
}

#[derive(Default)]
struct State {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl State {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes every connection on to another socket.
pub struct Tap(Arc<State>);

impl Tap {
    /// Listens at one Unix socket and passes on to another, to which it connects when a connection
    /// comes.
    pub fn start(at: &Path, to: &Path) -> Self {
        Self::listen(at, to, false)
    }

    /// As [`Tap::start`], and holds back the destination's word that it has loaded.
    pub fn holding(at: &Path, to: &Path) -> Self {
        Self::listen(at, to, true)
    }

    fn listen(at: &Path, to: &Path, hold: bool) -> Self {
        let listener = UnixListener::bind(at).expect("a fresh path");
        let state = Arc::new(State::default());
        state.seen().hold = hold;
        let (shared, to): (_, PathBuf) = (Arc::clone(&state), to.into());
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Who connects sees a closed connection when there is nobody to pass on to.
                let Ok(to) = UnixStream::connect(&to) else { continue };
                let pair = || -> std::io::Result<_> { Ok((from.try_clone()?, to.try_clone()?)) };
                let (back_to, back_from) = pair().expect("a file descriptor");
                let (forward, back) = (Arc::clone(&shared), Arc::clone(&shared));
                std::thread::spawn(move || pass_forward(from, to, &forward));
                std::thread::spawn(move || pass_back(back_from, back_to, &back));
            }
        });
        Self(state)
    }

    /// What has passed on the connections that have ended, in no order, once there are so many.
    pub fn passed(&self, connections: usize) -> Vec<Passed> {
        wait_for("the tapped connections to end", || {
            let mut passed = self.0.seen().passed.clone();
            passed.sort();
            (passed.len() >= connections).then_some(passed)
        })
    }

    /// Whether the destination has said that it has loaded, and that is held back.
    pub fn holds(&self) -> bool {
        self.0.seen().held
    }

    /// Lets go of what is held back, and of all that follows.
    pub fn release(&self) {
        self.0.seen().hold = false;
        self.0.changed.notify_all();
    }
}

fn pass_forward(mut from: UnixStream, mut to: UnixStream, state: &State) {
    let (mut hasher, mut bytes, mut buffer) = (blake3::Hasher::new(), 0, vec![0; 1 << 16]);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        hasher.update(&buffer[..length]);
        bytes += length as u64;
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    state.seen().passed.push((bytes, hasher.finalize().to_hex().to_string()));
}

/// The return path: be16 type, be16 length, payload.
fn pass_back(mut from: UnixStream, mut to: UnixStream, state: &State) {
    let mut head = [0; 4];
    while from.read_exact(&mut head).is_ok() {
        let mut message = head.to_vec();
        message.resize(4 + usize::from(u16::from_be_bytes([head[2], head[3]])), 0);
        if from.read_exact(&mut message[4..]).is_err() {
            break;
        }
        if message.starts_with(SHUT) || message == LOADED {
            let mut seen = state.seen();
            seen.held = seen.hold;
            drop(state.changed.wait_while(seen, |seen| seen.hold));
        }
        if to.write_all(&message).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
