//! Where connections wait until they have said what they are.
//!
//! Nobody needs to show anything in order to connect. So a connection costs one file descriptor and no
//! thread until it has spoken, and only so many wait. Where one more comes, one gives way: the oldest
//! of whoever has the most of them, so that nobody's silence keeps others out.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::process::{Resource, getrlimit};
use tracing::debug;

use crate::error::Error;
use crate::metrics::Metrics;
use crate::socket::{Listener, Party, Socket};

/// How often connections that may have to wait for something else than their words are looked at.
const TICK: Duration = Duration::from_millis(50);

/// How long to wait for what keeps connections from being accepted, where none can give way.
const UNTIL_NEXT: Duration = Duration::from_millis(100);

/// The listener's, among the connections' numbers.
const LISTENER: u64 = u64::MAX;

/// What has connected and waits.
pub(crate) struct Arrival {
    pub(crate) socket: Arc<Socket>,
    pub(crate) party: Party,
    pub(crate) came: Instant,
    number: u64,
}

/// What a connection that waits has said so far.
pub(crate) struct Said<'a> {
    pub(crate) bytes: &'a [u8],
    /// It is known to say no more.
    pub(crate) ended: bool,
    /// None of the same party waits that came before it.
    pub(crate) first: bool,
}

/// Whether a connection may pass.
pub(crate) trait Passes: Fn(&Arrival, &Said<'_>) -> bool {}
impl<T: Fn(&Arrival, &Said<'_>) -> bool> Passes for T {}

/// How a gate keeps its connections.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// So many wait at most.
    pub(crate) most: usize,
    /// So long, each.
    pub(crate) patience: Duration,
    /// What lets one pass may be something else than that it speaks.
    pub(crate) ticks: bool,
    /// So much of what they say is looked at.
    pub(crate) looks_at: usize,
    /// A party's first connection gives way to no other of its own.
    pub(crate) keeps_first: bool,
}

impl Rules {
    /// Room for those that wait, of which each takes a file descriptor: a quarter of all at most.
    pub(crate) fn room(most: usize) -> usize {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(files / 4).unwrap_or(usize::MAX).clamp(4, most)
    }
}

/// The connections that wait at one listener.
pub(crate) struct Gate<P> {
    listener: Arc<Listener>,
    rules: Rules,
    passes: P,
    metrics: Metrics,
    events: OwnedFd,
    /// In the order in which they came.
    waiting: VecDeque<Arrival>,
    /// Those of them that may pass.
    passing: VecDeque<Arrival>,
    next: u64,
    buffer: Vec<u8>,
}

impl<P: Passes> Gate<P> {
    /// Takes the listener's connections from now on; those that must give way are counted in
    /// `metrics`.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(crate) fn open(
        listener: Arc<Listener>,
        rules: Rules,
        metrics: Metrics,
        passes: P,
    ) -> Result<Self, Error> {
        let failed = |error: rustix::io::Errno| Error::Listen {
            address: listener.address().clone(),
            source: error.into(),
        };
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&events, &*listener, data, epoll::EventFlags::IN).map_err(failed)?;
        Ok(Self {
            listener,
            rules,
            passes,
            metrics,
            events,
            waiting: VecDeque::new(),
            passing: VecDeque::new(),
            next: 0,
            buffer: vec![0; rules.looks_at],
        })
    }

    /// The next connection that may pass.
    pub(crate) fn next(&mut self) -> Arrival {
        let mut events = Vec::with_capacity(self.rules.most + 1);
        loop {
            if self.rules.ticks {
                self.look_at_all();
            }
            if let Some(arrival) = self.passing.pop_front() {
                // What has been read no longer wakes anybody here.
                let _ = epoll::delete(&self.events, &*arrival.socket);
                return arrival;
            }
            self.let_go_of_the_late();
            events.clear();
            let limit = self.until_something_is_due();
            let room = rustix::buffer::spare_capacity(&mut events);
            // An interrupted wait is one that nothing came of.
            let _ = epoll::wait(&self.events, room, limit.as_ref());
            for event in &events {
                let (flags, data) = (event.flags, event.data);
                let ended = flags.contains(epoll::EventFlags::RDHUP);
                match data.u64() {
                    LISTENER => self.accept(),
                    number => self.look_at(number, ended),
                }
            }
        }
    }

    fn until_something_is_due(&self) -> Option<Timespec> {
        let due = self.waiting.front()?.came + self.rules.patience;
        let left = due.saturating_duration_since(Instant::now());
        let left = if self.rules.ticks { left.min(TICK) } else { left };
        // Never before it is due, and never no time at all.
        let left = left + Duration::from_millis(1);
        Timespec::try_from(left).ok()
    }

    fn let_go_of_the_late(&mut self) {
        while self.waiting.front().is_some_and(|first| first.came.elapsed() >= self.rules.patience)
        {
            self.waiting.pop_front();
            let words = format!("it has not said what it is in {:?}", self.rules.patience);
            self.metrics.turned_away(&words);
        }
    }

    fn accept(&mut self) {
        // Not without an end: those that wait have a turn too.
        for _ in 0..self.rules.most {
            match self.listener.accept() {
                Ok(Some(socket)) => self.admit(socket),
                Ok(None) => return,
                Err(error) if self.give_way(None) => {
                    self.metrics.turned_away(&format!("no room for another: {error}"));
                }
                Err(error) => {
                    self.metrics.turned_away(&format!("none can be accepted: {error}"));
                    std::thread::sleep(UNTIL_NEXT);
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: Socket) {
        let (number, party) = (self.next, socket.party());
        self.next += 1;
        let (socket, came) = (Arc::new(socket), Instant::now());
        if self.waiting.len() >= self.rules.most {
            self.metrics.turned_away("too many that have said nothing yet wait beside it");
            if !self.give_way(Some(party)) {
                return;
            }
        }
        let data = epoll::EventData::new_u64(number);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(&self.events, &*socket, data, flags) {
            return self.metrics.turned_away(&error.to_string());
        }
        self.waiting.push_back(Arrival { socket, party, came, number });
        self.look_at(number, false);
    }

    /// Closes the connection that has to, if there is one, and it is not the newcomer's.
    fn give_way(&mut self, newcomer: Option<Party>) -> bool {
        let parties = self.waiting.iter().map(|arrival| arrival.party).chain(newcomer);
        let Some(at) = gives_way(parties, self.rules.keeps_first) else { return false };
        self.waiting.remove(at).is_some()
    }

    fn look_at_all(&mut self) {
        let numbers: Vec<u64> = self.waiting.iter().map(|arrival| arrival.number).collect();
        for number in numbers {
            self.look_at(number, false);
        }
    }

    /// Lets a connection pass that may; closes one that has not said anything and will not.
    fn look_at(&mut self, number: u64, ended: bool) {
        let Ok(at) = self.waiting.binary_search_by_key(&number, |arrival| arrival.number) else {
            // It has given way.
            return;
        };
        let arrival = &self.waiting[at];
        let said = match arrival.socket.look(&mut self.buffer) {
            Ok(length @ 1..) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Ok(0) | Err(_) => {
                debug!("a connection was closed without a word");
                self.waiting.remove(at);
                return;
            }
        };
        let mut before = self.waiting.range(..at);
        let first = !before.any(|other| other.party == arrival.party);
        let said = Said { bytes: &self.buffer[..said], ended, first };
        if (self.passes)(arrival, &said)
            && let Some(arrival) = self.waiting.remove(at)
        {
            self.passing.push_back(arrival);
        }
    }
}

/// Which of these, in the order in which they came, has to give way: the oldest of those who have the
/// most, or, with `keeps_first`, the one of the same party behind it.
pub(crate) fn gives_way(
    parties: impl Iterator<Item = Party> + Clone,
    keeps_first: bool,
) -> Option<usize> {
    let mut counts: HashMap<Party, usize> = HashMap::new();
    for party in parties.clone() {
        *counts.entry(party).or_default() += 1;
    }
    let most = *counts.values().max()?;
    let mut of_most = parties.enumerate().filter(|(_, party)| counts[party] == most);
    let (oldest, party) = of_most.next()?;
    let next = of_most.find(|(_, other)| keeps_first && *other == party);
    Some(next.map_or(oldest, |(at, _)| at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_those_who_have_the_most_gives_way() {
        let who = |hosts: &[u128], keeps_first| {
            gives_way(hosts.iter().map(|host| Party::Host(Some(*host))), keeps_first)
        };
        assert_eq!(who(&[2, 1, 1], false), Some(1), "one alone is spared however old it is");
        assert_eq!(who(&[1, 2, 1, 1, 2], false), Some(0));
        assert_eq!(who(&[1, 2, 1, 1, 2], true), Some(2), "what a party opened first stays");
        for keeps_first in [false, true] {
            assert_eq!(who(&[3, 1, 2], keeps_first), Some(0), "of equals the oldest");
            assert_eq!(who(&[], keeps_first), None);
        }
    }
}
