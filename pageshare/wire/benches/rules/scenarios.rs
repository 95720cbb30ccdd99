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

/// All of them.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let gbit = 118e6;
    let s = |name: String, guest: Guest, wire: f64, rtt: f64, cpu: f64, there: f64, busy: usize| {
        Scenario {
            name,
            guest,
            bytes: if wire > 3e8 { 2 << 30 } else { 512 << 20 },
            wire: vec![(0.0, wire)],
            round_trip: rtt,
            processors: vec![(0.0, cpu)],
            busy,
            there,
            cap: 1e12,
            there_processors: None,
        }
    };
    for guest in [web(), memcached(), compile(), random(), micro(), database(), phases()] {
        for (label, rate) in [("0.1", 0.1), ("1", 1.0), ("10", 10.0), ("25", 25.0)] {
            for cpu in [8.0, 2.0, 1.0, 0.5, 0.25] {
                all.push(s(
                    format!("{} {label}G cpu{cpu}", guest.name),
                    guest.clone(),
                    rate * gbit,
                    0.2e-3,
                    cpu,
                    1.0,
                    0,
                ));
            }
        }
    }
    for guest in [web(), memcached()] {
        for rtt in [10e-3, 40e-3, 100e-3] {
            all.push(s(
                format!("{} 1G rtt{rtt}", guest.name),
                guest.clone(),
                gbit,
                rtt,
                2.0,
                1.0,
                0,
            ));
        }
        for there in [0.5, 0.0] {
            for (l, r) in [("1", 1.0), ("10", 10.0)] {
                for cpu in [2.0, 0.5] {
                    all.push(s(
                        format!("{} {l}G there{there} cpu{cpu}", guest.name),
                        guest.clone(),
                        r * gbit,
                        0.2e-3,
                        cpu,
                        there,
                        0,
                    ));
                }
            }
        }
        for cpu in [2.0, 0.7] {
            let mut c = s(
                format!("{} 1G cpu{cpu} capped", guest.name),
                guest.clone(),
                gbit,
                0.2e-3,
                cpu,
                1.0,
                0,
            );
            c.cap = 60e6;
            all.push(c);
        }
        for there in [0.5, 0.25] {
            for (l, r) in [("1", 1.0), ("10", 10.0)] {
                let mut c = s(
                    format!("{} {l}G cpu2,{there}", guest.name),
                    guest.clone(),
                    gbit * r,
                    0.2e-3,
                    2.0,
                    1.0,
                    0,
                );
                c.there_processors = Some(there);
                all.push(c);
            }
        }
        for cpu in [0.7] {
            all.push(s(
                format!("{} 1G cpu{cpu}", guest.name),
                guest.clone(),
                gbit,
                0.2e-3,
                cpu,
                1.0,
                0,
            ));
        }
        for busy in [1, 2] {
            all.push(s(
                format!("{} 1G cpu1 busy{busy}", guest.name),
                guest.clone(),
                gbit,
                0.2e-3,
                1.0,
                1.0,
                busy,
            ));
        }
        let mut c =
            s(format!("{} 10G->1G", guest.name), guest.clone(), 10.0 * gbit, 0.2e-3, 2.0, 1.0, 0);
        c.wire = vec![(0.0, 10.0 * gbit), (0.8, gbit)];
        all.push(c.clone());
        c.name = format!("{} 1G->10G", guest.name);
        c.wire = vec![(0.0, gbit), (1.5, 10.0 * gbit)];
        all.push(c.clone());
        c.name = format!("{} 1G cpu 2->0.25", guest.name);
        c.bytes = 512 << 20;
        c.wire = vec![(0.0, gbit)];
        c.processors = vec![(0.0, 2.0), (0.6, 0.25)];
        all.push(c.clone());
        c.name = format!("{} 1G cpu 0.25->2", guest.name);
        c.processors = vec![(0.0, 0.25), (3.0, 2.0)];
        all.push(c);
    }
    all
}
