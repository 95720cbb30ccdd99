//! Where the rules are tried.

use crate::guest::{CODE, Guest, HEX, NOISE, SHARED, SHARED_NOISE, Scenario};

fn web() -> Guest {
    Guest {
        name: "web",
        qemu: 2.0,
        phases: vec![vec![(0.75, SHARED), (0.10, SHARED_NOISE), (0.11, CODE), (0.04, NOISE)]],
    }
}
fn memcached() -> Guest {
    Guest {
        name: "memcached",
        qemu: 2.0,
        phases: vec![vec![(0.6, SHARED), (0.3, HEX), (0.1, CODE)]],
    }
}
fn compile() -> Guest {
    Guest {
        name: "compile",
        qemu: 2.0,
        phases: vec![
            vec![(0.8, SHARED), (0.2, CODE)],
            vec![(0.9, SHARED), (0.1, CODE)],
            vec![(0.5, SHARED), (0.5, CODE)],
        ],
    }
}
fn random() -> Guest {
    Guest { name: "random", qemu: 1.1, phases: vec![vec![(0.85, NOISE), (0.15, SHARED)]] }
}
fn micro() -> Guest {
    Guest { name: "micro", qemu: 1.1, phases: vec![vec![(0.828, SHARED_NOISE), (0.172, NOISE)]] }
}
fn database() -> Guest {
    Guest { name: "database", qemu: 1.1, phases: vec![vec![(1.0, CODE)]] }
}
fn phases() -> Guest {
    Guest {
        name: "phases",
        qemu: 1.1,
        phases: vec![
            vec![(1.0, NOISE)],
            vec![(1.0, CODE)],
            vec![(1.0, SHARED)],
            vec![(0.9, NOISE), (0.1, CODE)],
            vec![(1.0, SHARED_NOISE)],
        ],
    }
}

const GBIT: f64 = 118e6;

/// A guest over a wire of so many Gbit/s, between hosts of so many processors.
fn near(guest: &Guest, gbits: f64, processors: f64) -> Scenario {
    Scenario {
        name: format!("{}, {gbits} Gbit/s, {processors} processors", guest.name),
        guest: guest.clone(),
        bytes: if gbits > 2.0 { 2 << 30 } else { 512 << 20 },
        wire: vec![(0.0, gbits * GBIT)],
        round_trip: 0.2e-3,
        processors: vec![(0.0, processors)],
        busy: 0,
        there: 1.0,
        cap: f64::INFINITY,
        there_processors: None,
    }
}

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |mut scenario: Scenario, with: &str, change: &dyn Fn(&mut Scenario)| {
        scenario.name += with;
        change(&mut scenario);
        all.push(scenario);
    };
    for guest in [web(), memcached(), compile(), random(), micro(), database(), phases()] {
        for gbits in [0.1, 1.0, 10.0, 25.0] {
            for processors in [8.0, 2.0, 1.0, 0.5, 0.25] {
                add(near(&guest, gbits, processors), "", &|_| {});
            }
        }
    }
    for guest in [web(), memcached()] {
        for far in [10e-3, 40e-3, 100e-3] {
            add(near(&guest, 1.0, 2.0), &format!(", {far} s"), &|it| it.round_trip = far);
        }
        for there in [0.5, 0.0] {
            for (gbits, processors) in [(1.0, 2.0), (1.0, 0.5), (10.0, 2.0), (10.0, 0.5)] {
                let with = format!(", {there} of it there");
                add(near(&guest, gbits, processors), &with, &|it| it.there = there);
            }
        }
        for processors in [2.0, 0.7] {
            add(near(&guest, 1.0, processors), ", capped", &|it| it.cap = 60e6);
        }
        for (short, gbits) in [(0.5, 1.0), (0.5, 10.0), (0.25, 1.0), (0.25, 10.0)] {
            let with = format!(" and {short}");
            add(near(&guest, gbits, 2.0), &with, &|it| it.there_processors = Some(short));
        }
        add(near(&guest, 1.0, 0.7), "", &|_| {});
        for busy in [1, 2] {
            add(near(&guest, 1.0, 1.0), &format!(", {busy} busy"), &|it| it.busy = busy);
        }
        add(near(&guest, 10.0, 2.0), ", then 1 Gbit/s", &|it| {
            it.wire = vec![(0.0, 10.0 * GBIT), (0.8, GBIT)];
        });
        add(near(&guest, 10.0, 2.0), ", before 1 Gbit/s", &|it| {
            it.wire = vec![(0.0, GBIT), (1.5, 10.0 * GBIT)];
        });
        add(near(&guest, 1.0, 2.0), ", then 0.25", &|it| {
            it.processors = vec![(0.0, 2.0), (0.6, 0.25)];
        });
        add(near(&guest, 1.0, 2.0), ", before 0.25", &|it| {
            it.processors = vec![(0.0, 0.25), (3.0, 2.0)];
        });
    }
    all
}
