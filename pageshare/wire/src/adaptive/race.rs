//! Whether asking is faster than going without, where both come near to the link's speed.
//!
//! What asking costs all in all cannot be read off one host: the other one looks up, copies and
//! hashes too, its QEMU wants processors as well, and how much of it goes on at once is for the two
//! hosts' schedulers. So both ways are tried in turn, and the clock decides.

/// Stream bytes before a heat is timed: what was in flight came the other way.
const LEAD: usize = 8 << 20;
/// Stream bytes that are timed.
const HEAT: usize = 12 << 20;
/// Heats each way, at most. The fastest counts: whatever else a machine does only slows one down.
const HEATS: u32 = 2;
/// Stream bytes until the next race.
const REST: usize = 512 << 20;
/// Going without has to take less than this, in parts of the time with asking: it fills the link.
const CLEARLY: f64 = 0.9;
/// Where it takes less than this after one heat each, no other is run.
const BY_FAR: f64 = 0.65;

/// The two ways against each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Race {
    phase: Phase,
    /// Seconds that a heat took at best, without asking and with.
    best: [Option<f64>; 2],
    /// Without asking is the faster.
    lost: bool,
}

#[derive(Debug, Clone, Default)]
enum Phase {
    /// There is nothing to find out.
    #[default]
    Off,
    /// The heat of this number: with asking if it is even. Bytes since it, or its timing, began.
    Heat { number: u32, bytes: usize, timed_from: Option<f64> },
    /// It is decided; stream bytes until the next one.
    Rest(usize),
}

impl Race {
    /// `bytes` more of the stream have come at `now`, in seconds since any fixed time. `open` says
    /// whether it is worth a race.
    pub(super) fn took(&mut self, bytes: usize, now: f64, open: bool) {
        if !open {
            *self = Self::default();
            return;
        }
        self.phase = match std::mem::take(&mut self.phase) {
            Phase::Off => {
                self.best = [None; 2];
                Phase::Heat { number: 0, bytes: 0, timed_from: None }
            }
            Phase::Heat { number, bytes: before, timed_from } => {
                self.heat(number, before + bytes, timed_from, now)
            }
            Phase::Rest(left) => left.checked_sub(bytes).map_or(Phase::Off, Phase::Rest),
        };
    }

    fn heat(&mut self, number: u32, bytes: usize, timed_from: Option<f64>, now: f64) -> Phase {
        match timed_from {
            None if bytes >= LEAD => Phase::Heat { number, bytes: 0, timed_from: Some(now) },
            Some(from) if bytes >= HEAT => {
                let way = usize::from(number.is_multiple_of(2));
                let seconds = (now - from) / super::as_f64(bytes);
                self.best[way] = Some(self.best[way].map_or(seconds, |best| best.min(seconds)));
                let [without, with] = self.best;
                let less_than = |part| without.zip(with).is_some_and(|(a, b)| a < part * b);
                if number + 1 < 2 * HEATS && !less_than(BY_FAR) {
                    return Phase::Heat { number: number + 1, bytes: 0, timed_from: None };
                }
                self.lost = less_than(CLEARLY);
                Phase::Rest(REST)
            }
            _ => Phase::Heat { number, bytes, timed_from },
        }
    }

    /// Whether it has begun, or has been decided.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self.phase, Phase::Off)
    }

    /// Whether to ask now.
    pub(super) fn asks(&self) -> bool {
        match self.phase {
            Phase::Heat { number, .. } => number.is_multiple_of(2),
            Phase::Off | Phase::Rest(_) => !self.lost,
        }
    }
}
