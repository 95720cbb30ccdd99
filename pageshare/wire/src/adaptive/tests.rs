//! The policy against a model of a sender, what waits in the kernel, and a link behind it.

use super::*;

const MAY_WAIT: f64 = 512.0 * 1024.0;
const SEGMENT: usize = 256 << 10;
/// Of a run that goes whole.
const PROBE_SEGMENTS: usize = 8;
/// What zstd makes of a guest's pages, and takes for it.
const SAVED: f64 = 0.75;
const SECONDS_A_BYTE: f64 = 2.5e-9;

struct Model {
    link: Link,
    compress: StepGain,
    now: f64,
    unsent: f64,
    /// In half of the times that the writer waits, it goes on only when the link has run dry.
    wakes_late: bool,
    waits: u32,
}

impl Model {
    fn new() -> Self {
        let compress = StepGain::new(Policy::Adaptive, 1);
        Self { link: Link::default(), compress, now: 0.0, unsent: 0.0, wakes_late: false, waits: 0 }
    }

    /// Sends so many segments, each after the `work` seconds that it takes without compressing,
    /// over a link of so many bytes a second; returns the share that was compressed.
    fn send(&mut self, segments: u32, work: f64, speed: f64) -> f64 {
        let mut compressed = 0;
        for _ in 0..segments {
            let whole = self.link.probe(SEGMENT) && self.compress.adapts();
            let on = !whole && self.compress.worth_it(&self.link);
            let cost = if on { SECONDS_A_BYTE * as_f64(SEGMENT) } else { 0.0 };
            let bytes = if on { SEGMENT / 4 } else { SEGMENT };
            self.now += work + cost;
            self.unsent = (self.unsent - (work + cost) * speed).max(0.0);
            let begin = self.now;
            // The copy into the kernel runs at the speed of memory, whatever the link does.
            self.now += as_f64(bytes) / 4e9;
            self.unsent += as_f64(bytes);
            let waited = self.unsent > MAY_WAIT;
            if waited {
                // The kernel wakes a writer when half of what may wait does.
                let rest = (self.unsent - MAY_WAIT) % (MAY_WAIT / 2.0);
                self.waits += 1;
                // As if by chance.
                let late = self.wakes_late && self.waits.wrapping_mul(0x9e37_79b9) >> 31 == 1;
                let left = if late { rest } else { MAY_WAIT / 2.0 + rest };
                self.now += (self.unsent - left) / speed;
                self.unsent = left;
            }
            let span = (begin, self.now);
            self.link.wrote(Written { bytes, span, waited, stream: SEGMENT });
            if on {
                compressed += 1;
                self.compress.cost(SEGMENT, cost);
                self.compress.outcome(SEGMENT, SEGMENT - bytes);
            }
        }
        f64::from(compressed) / f64::from(segments)
    }
}

/// A sender that takes 400 MB/s from QEMU.
const WORK: f64 = 256.0 * 1024.0 / 400e6;

#[test]
fn a_slow_link_is_worth_compressing_for_although_the_kernel_takes_bursts_at_once() {
    let mut model = Model::new();
    let share = model.send(600, WORK, 118e6);
    assert!(share > 0.93, "{share}");
    let speed = model.link.speed();
    assert!((80e6..250e6).contains(&speed), "{speed}");
}

#[test]
fn a_sender_little_faster_than_the_link_does_not_make_it_look_fast() {
    // Long pieces fit into what may wait: what the kernel took, the link has not.
    for rate in [100e6, 125e6, 135e6, 150e6, 170e6, 200e6, 300e6] {
        let mut model = Model::new();
        let share = model.send(1200, 256.0 * 1024.0 / rate, 118e6);
        assert!(share > 0.95, "at {rate}: {share}");
        let speed = model.link.speed();
        assert!((80e6..180e6).contains(&speed), "at {rate}: {speed}");
    }
}

#[test]
fn a_writer_that_is_woken_late_does_not_make_the_link_look_fast() {
    // It finds nothing waiting, and has as much wait as may at the speed of memory.
    let compress = StepGain::new(Policy::Never, 1);
    let mut model = Model { wakes_late: true, compress, ..Model::new() };
    for _ in 0..600 {
        model.send(1, WORK / 20.0, 118e6);
        let speed = model.link.speed();
        assert!((80e6..180e6).contains(&speed), "{speed}");
    }
}

#[test]
fn a_link_that_outruns_the_sender_is_not() {
    let mut model = Model::new();
    model.send(64, WORK, 1.18e9);
    let share = model.send(600, WORK, 1.18e9);
    assert!(share < 0.05, "{share}");
}

#[test]
fn a_link_that_is_filled_anyway_is_not_tried() {
    let compress = StepGain::new(Policy::Never, 1);
    let mut model = Model { compress, ..Model::new() };
    model.send(64, WORK, 118e6);
    let mut link = model.link;
    let tried = (0..4096).filter(|_| link.probe(SEGMENT)).count();
    let mut unseen = Link::default();
    let else_tried = (0..4096).filter(|_| unseen.probe(SEGMENT)).count();
    assert!(tried + PROBE_SEGMENTS <= else_tried, "{tried} of {else_tried}");
}

#[test]
fn it_follows_a_link_that_changes() {
    let mut model = Model::new();
    model.send(64, WORK, 1.18e9);
    model.send(16, WORK, 118e6);
    let share = model.send(600, WORK, 118e6);
    assert!(share > 0.93, "slower: {share}");
    // That it was filled is trusted until the next trial but one.
    model.send(2400, WORK, 1.18e9);
    let share = model.send(600, WORK, 1.18e9);
    assert!(share < 0.05, "faster: {share}");
}

#[test]
fn a_sender_that_has_little_to_send_learns_nothing_and_goes_on() {
    let mut model = Model::new();
    let share = model.send(600, 10.0 * WORK, 1.18e9);
    assert!(share > 0.93, "{share}");
}

#[test]
fn a_few_dear_bytes_among_many_do_not_make_a_step_dear() {
    let link = Link::default();
    let mut compress = StepGain::new(Policy::Adaptive, 1);
    for _ in 0..200 {
        // Nearly all of this segment's pages travel as references.
        compress.cost(100, 50e-6);
        compress.outcome(100, 10);
        compress.cost(SEGMENT, SECONDS_A_BYTE * as_f64(SEGMENT));
        compress.outcome(SEGMENT, SEGMENT * 3 / 4);
    }
    assert!(compress.pays(&link));
}

#[test]
fn a_moment_in_which_the_machine_stood_still_does_not_make_a_step_dear() {
    let link = Link::default();
    for before in [0, 1, 50] {
        let mut compress = StepGain::new(Policy::Adaptive, 1);
        for _ in 0..before {
            compress.cost(SEGMENT, SECONDS_A_BYTE * as_f64(SEGMENT));
        }
        compress.cost(SEGMENT, 100.0 * SECONDS_A_BYTE * as_f64(SEGMENT));
        assert!(compress.pays(&link), "after {before}");
        for _ in 0..3 {
            compress.cost(SEGMENT, SECONDS_A_BYTE * as_f64(SEGMENT));
            assert!(compress.pays(&link), "after {before}");
        }
    }
}

#[test]
fn what_was_dear_at_first_comes_back_soon() {
    let link = Link::default();
    let mut compress = StepGain::new(Policy::Adaptive, 1);
    let mut tried = 0;
    for _ in 0..200 {
        if compress.worth_it(&link) {
            let slower = if tried < 3 { 10.0 } else { 1.0 };
            compress.cost(SEGMENT, slower * SECONDS_A_BYTE * as_f64(SEGMENT));
            compress.outcome(SEGMENT, SEGMENT * 3 / 4);
            tried += 1;
        }
    }
    assert!(tried > 170, "{tried}");
}

#[test]
fn a_step_that_hides_behind_the_link_is_on_and_one_that_the_link_would_wait_for_is_not() {
    let link = Link::default();
    let whole = 1.0 / link.speed();
    // Of a page: processor time in parts of the link time that it takes whole, per cent saved.
    for (cost, saved, on) in [(0.7, 40, true), (0.8, 90, false), (0.5, 30, true), (0.5, 20, false)]
    {
        let mut step = StepGain::new(Policy::Adaptive, 1);
        for _ in 0..200 {
            step.cost(SEGMENT, cost * whole * as_f64(SEGMENT));
            step.outcome(SEGMENT, SEGMENT * saved / 100);
        }
        assert_eq!(step.pays(&link), on, "{cost} of the link's time saves {saved} %");
    }
}

#[test]
fn what_saves_nothing_stops_and_is_still_sampled() {
    let link = Link::default();
    let mut hashing = StepGain::new(Policy::Adaptive, PAGES_TOGETHER);
    for _ in 0..200 {
        hashing.cost(SEGMENT, 0.5e-9 * as_f64(SEGMENT));
        hashing.outcome(SEGMENT, 0);
    }
    // Until it is tried as seldom as it will be.
    for _ in 0..2 * SAMPLE * PAGES_TOGETHER {
        let _ = hashing.worth_it(&link);
    }
    let turns = SAMPLE * PAGES_TOGETHER * 10;
    let tried: Vec<bool> = (0..turns).map(|_| hashing.worth_it(&link)).collect();
    assert_eq!(tried.iter().filter(|tried| **tried).count(), 160);
    let begun = tried.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert_eq!(begun, 10, "sixteen in a row make one question");
    for _ in 0..50 {
        hashing.outcome(4096, 4096);
    }
    assert!(hashing.pays(&link), "it comes back when sampled pages save");
    for _ in 0..200 {
        hashing.cost(SEGMENT, SAVED);
    }
    assert!(!hashing.pays(&link), "and not where it costs more than that");
}

/// Sends so much of the stream in segments, of which pages that are asked for save four fifths, where
/// the sender and the link go on at these speeds with asking and without; returns the share of the
/// segments that were asked for.
fn ask(gains: &mut Gains, now: &mut f64, mib: usize, with: f64, without: f64, link: f64) -> f64 {
    let (segments, mut asked) = (mib << 20 >> 18, 0);
    for _ in 0..segments {
        let _ = gains.took(SEGMENT, *now);
        let on = gains.asks();
        let bytes = if on { SEGMENT / 5 } else { SEGMENT };
        let seconds = as_f64(SEGMENT) / if on { with } else { without.min(link) };
        let waited = !on && link < without;
        let span = (*now, *now + if waited { seconds } else { as_f64(bytes) / 4e9 });
        *now += seconds;
        gains.link.wrote(Written { bytes, span, waited, stream: SEGMENT });
        if on {
            asked += 1;
            gains.ask.cost(SEGMENT, 0.3e-9 * as_f64(SEGMENT));
            gains.ask.outcome(SEGMENT, SEGMENT / 5 * 4);
        }
    }
    f64::from(asked) / as_f64(segments)
}

#[test]
fn asking_stops_where_both_hosts_are_slower_with_it_than_the_link_without() {
    let (mut gains, mut now) = (Gains::new(Policy::Adaptive, Policy::Never), 0.0);
    ask(&mut gains, &mut now, 256, 600e6, 1.1e9, 1.2e9);
    let share = ask(&mut gains, &mut now, 4096, 600e6, 1.1e9, 1.2e9);
    assert!(share < 0.1, "{share}");
    let share = ask(&mut gains, &mut now, 2048, 2e9, 1.1e9, 1.2e9);
    assert!(share > 0.5, "it comes back when it is no slower: {share}");
}

#[test]
fn asking_goes_on_where_it_hides_behind_a_fast_link() {
    let (mut gains, mut now) = (Gains::new(Policy::Adaptive, Policy::Never), 0.0);
    let share = ask(&mut gains, &mut now, 4096, 1.1e9, 1.1e9, 1.2e9);
    assert!(share > 0.8, "{share}");
}

#[test]
fn there_is_no_race_over_a_link_that_asking_surely_hides_behind() {
    let (mut gains, mut now) = (Gains::new(Policy::Adaptive, Policy::Never), 0.0);
    // On busy hosts: whole pages would take as long, and asking saves bytes.
    let share = ask(&mut gains, &mut now, 4096, 90e6, 400e6, 118e6);
    assert!(share > 0.98, "{share}");
}

#[test]
fn what_the_operator_says_is_done() {
    for (policy, share) in [(Policy::Always, 1.0), (Policy::Never, 0.0)] {
        let (mut gains, mut now) = (Gains::new(policy, Policy::Never), 0.0);
        let asked = ask(&mut gains, &mut now, 1024, 600e6, 1.1e9, 1.2e9);
        assert!((asked - share).abs() < f64::EPSILON, "{policy:?}: {asked}");
    }
}

#[test]
fn what_compresses_is_compressed_in_the_midst_of_noise() {
    let mut gains = Gains::new(Policy::Never, Policy::Adaptive);
    let mut tried = [0, 0];
    for number in 0..2000 {
        let noise = number % 20 != 0;
        if gains.compresses(false, noise) {
            tried[usize::from(noise)] += 1;
            let to = if noise { SEGMENT } else { SEGMENT / 4 };
            gains.compressed(noise, (SEGMENT, to), SECONDS_A_BYTE * as_f64(SEGMENT));
        }
    }
    assert_eq!(tried[0], 100);
    assert!((1..200).contains(&tried[1]), "{tried:?}");
}
