//! Guests of the model: what their pages are, in which order they come, and where they migrate.

pub const SEGMENT: usize = 256 << 10;
pub const PAGE: usize = 4096;

/// What a page is.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The destination may have it.
    pub shared: bool,
    pub noise: bool,
    /// What zstd makes of a byte, what it takes for that, and what expanding takes, in nanoseconds.
    pub ratio: f64,
    pub compress: f64,
    pub expand: f64,
}

pub const SHARED: Kind =
    Kind { shared: true, noise: false, ratio: 0.33, compress: 2.0, expand: 0.8 };
pub const SHARED_NOISE: Kind =
    Kind { shared: true, noise: true, ratio: 1.0, compress: 0.1, expand: 0.0 };
pub const CODE: Kind = Kind { shared: false, noise: false, ratio: 0.4, compress: 2.5, expand: 0.9 };
pub const HEX: Kind = Kind { shared: false, noise: false, ratio: 0.55, compress: 1.5, expand: 0.6 };
pub const NOISE: Kind = Kind { shared: false, noise: true, ratio: 1.0, compress: 0.1, expand: 0.0 };

/// A guest: what QEMU takes for a byte of the stream, and the shares of kinds in its phases.
#[derive(Clone)]
pub struct Guest {
    pub name: &'static str,
    pub qemu: f64,
    pub phases: Vec<Vec<(f64, Kind)>>,
}

#[derive(Clone)]
pub struct Scenario {
    pub name: String,
    pub guest: Guest,
    pub bytes: usize,
    /// Bytes a second, from a time on.
    pub wire: Vec<(f64, f64)>,
    pub round_trip: f64,
    /// Processors of both hosts, from a time on.
    pub processors: Vec<(f64, f64)>,
    /// Threads of the source's guests that compute all the time.
    pub busy: usize,
    /// Share of the shared pages that the destination has.
    pub there: f64,
    /// QEMU's `max-bandwidth`, which it keeps to in steps of a tenth of a second.
    pub cap: f64,
    /// Of the destination, if they are others.
    pub there_processors: Option<f64>,
}

/// Numbers as if by chance, the same each time.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Clone, Default)]
pub struct Segment {
    /// How many pages are of each kind, and there or not.
    pub pages: Vec<((usize, bool), usize)>,
    pub asked: usize,
    pub found: usize,
    pub waits: bool,
    pub whole: bool,
    pub noise: bool,
    pub asked_at: f64,
    pub from: usize,
    pub bytes: usize,
    pub expand: f64,
    pub encoded: bool,
}

pub const KINDS: [Kind; 5] = [SHARED, SHARED_NOISE, CODE, HEX, NOISE];

pub fn index(kind: &Kind) -> usize {
    KINDS
        .iter()
        .position(|it| {
            it.compress == kind.compress && it.shared == kind.shared && it.ratio == kind.ratio
        })
        .expect("a kind")
}

pub fn segments(scenario: &Scenario) -> Vec<Segment> {
    let count = scenario.bytes / SEGMENT;
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut main, mut left) = (0, 0);
    let pick = |mix: &[(f64, Kind)], chance: &mut Chance| {
        let mut at = chance.next() * mix.iter().map(|it| it.0).sum::<f64>();
        for (share, kind) in mix {
            at -= share;
            if at <= 0.0 {
                return index(kind);
            }
        }
        index(&mix[0].1)
    };
    (0..count)
        .map(|number| {
            let mix = &scenario.guest.phases[number * scenario.guest.phases.len() / count];
            if left == 0 {
                (main, left) = (pick(mix, &mut chance), 1 + (chance.next() * 12.0) as usize);
            }
            left -= 1;
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..SEGMENT / PAGE {
                let kind = if chance.next() < 0.75 { main } else { pick(mix, &mut chance) };
                let there = KINDS[kind].shared && chance.next() < scenario.there;
                *counts.entry((kind, there)).or_insert(0) += 1;
            }
            Segment { pages: counts.into_iter().collect(), ..Segment::default() }
        })
        .collect()
}
