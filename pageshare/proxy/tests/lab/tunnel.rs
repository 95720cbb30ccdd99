//! A way to a monitor on another host, as `ssh -L` makes it: it can break and come back.

use std::io::copy;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pageshare::address::Address;

/// Passes every connection on to another socket.
pub struct Tunnel {
    at: PathBuf,
    to: PathBuf,
    ends: Arc<Mutex<Vec<UnixStream>>>,
}

impl Tunnel {
    /// Listens at one Unix socket and leads to another.
    pub fn open(at: PathBuf, to: Address) -> Self {
        let Address::Unix(to) = to else { panic!("a monitor has a Unix socket") };
        let tunnel = Self { at, to, ends: Arc::default() };
        tunnel.mend();
        tunnel
    }

    /// Breaks it: its connections end, and nobody listens any more.
    pub fn cut(&self) {
        std::fs::remove_file(&self.at).expect("it listens");
        for end in self.ends.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Lets it listen again.
    pub fn mend(&self) {
        let listener = UnixListener::bind(&self.at).expect("a fresh path");
        let (to, ends) = (self.to.clone(), Arc::clone(&self.ends));
        std::thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Who connects sees a closed connection when there is nobody to pass on to.
                let Ok(to) = UnixStream::connect(&to) else { continue };
                let again = |end: &UnixStream| end.try_clone().expect("a file descriptor");
                let back = (again(&to), again(&from));
                let both = [again(&from), again(&to)];
                ends.lock().unwrap_or_else(PoisonError::into_inner).extend(both);
                std::thread::spawn(move || pass(from, to));
                std::thread::spawn(move || pass(back.0, back.1));
            }
        });
    }
}

fn pass(mut from: UnixStream, mut to: UnixStream) {
    // The connections end as those who use them end them.
    let _ = copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}
