//! What the controller's rules are worth: migrations in virtual time, beside fixed settings and
//! a simpler rule. Prints the table of docs/design/pageshare.md; `-- each` prints every scenario.

#![allow(
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "a program, and numbers that are far from the ends of their types"
)]

#[path = "rules/effort.rs"]
mod effort;
#[path = "rules/guest.rs"]
mod guest;
#[path = "rules/host.rs"]
mod host;
#[path = "rules/model.rs"]
mod model;
#[path = "rules/scenarios.rs"]
mod scenarios;

use effort::{Effort, Turn, Write};
use guest::Scenario;
use model::{Model, Outcome, Rule};
use pageshare_wire::adaptive::{Gains, Policy, Written};

/// The controller.
struct Controller(Gains);

impl Rule for Controller {
    fn took(&mut self, bytes: usize, _hungry: f64, _queued: f64, now: f64) -> bool {
        self.0.took(bytes, now)
    }
    fn asks(&mut self) -> bool {
        self.0.asks()
    }
    fn samples(&self) -> bool {
        self.0.samples()
    }
    fn hashed(&mut self, bytes: usize, seconds: f64) {
        self.0.ask.cost(bytes, seconds);
    }
    fn answered(&mut self, bytes: usize, found: usize) {
        self.0.ask.outcome(bytes, found);
    }
    fn compresses(&mut self, whole: bool, noise: bool) -> bool {
        self.0.compresses(whole, noise)
    }
    fn compressed(&mut self, noise: bool, from_to: (usize, usize), seconds: f64) {
        self.0.compressed(noise, from_to, seconds);
    }
    fn wrote(&mut self, bytes: usize, span: (f64, f64), waited: bool, stream: usize) {
        self.0.link.wrote(Written { bytes, span, waited, stream });
    }
}

/// The simple rule.
struct Simple(Effort, Turn);

impl Rule for Simple {
    fn took(&mut self, bytes: usize, hungry: f64, queued: f64, _now: f64) -> bool {
        self.0.queued(queued);
        self.1 = self.0.took(bytes, hungry);
        self.1.whole
    }
    fn asks(&mut self) -> bool {
        self.1.asks
    }
    fn samples(&self) -> bool {
        self.1.samples
    }
    fn hashed(&mut self, _bytes: usize, _seconds: f64) {}
    fn answered(&mut self, bytes: usize, found: usize) {
        self.0.answered(bytes, found);
    }
    fn compresses(&mut self, whole: bool, _noise: bool) -> bool {
        self.0.compresses(whole)
    }
    fn compressed(&mut self, _noise: bool, _from_to: (usize, usize), _seconds: f64) {}
    fn wrote(&mut self, bytes: usize, span: (f64, f64), waited: bool, stream: usize) {
        self.0.wrote(Write { bytes, span, waited, stream });
    }
}

type Named = (&'static str, Box<dyn Fn() -> Box<dyn Rule>>);

fn controller(ask: Policy, compress: Policy) -> Box<dyn Fn() -> Box<dyn Rule>> {
    Box::new(move || Box::new(Controller(Gains::new(ask, compress))))
}

fn rules() -> Vec<Named> {
    use Policy::{Adaptive, Always, Never};
    vec![
        ("the controller", controller(Adaptive, Adaptive)),
        ("nothing", controller(Never, Never)),
        ("asks only", controller(Always, Never)),
        ("compresses only", controller(Never, Always)),
        ("everything", controller(Always, Always)),
        (
            "the simple rule",
            Box::new(|| Box::new(Simple(Effort::new(Adaptive, Adaptive), Turn::default()))),
        ),
    ]
}

/// Of what kind a scenario is.
fn group(scenario: &Scenario) -> &'static str {
    let processors = scenario.processors[0].1;
    let fast = scenario.wire[0].1 > 2e8;
    if scenario.cap < 1e9 {
        "capped"
    } else if scenario.there_processors.is_some() {
        "destination short"
    } else if scenario.wire.len() > 1 || scenario.processors.len() > 1 {
        "changes"
    } else if scenario.round_trip > 1e-3 {
        "distance"
    } else if scenario.busy > 0 || (0.6..0.8).contains(&processors) {
        "busy"
    } else {
        match (fast, processors) {
            (false, 1.0..) => "slow, 1-8",
            (false, 0.4..) => "slow, 1/2",
            (false, _) => "slow, 1/4",
            (true, 1.0..) => "fast, 1-8",
            (true, _) => "fast, 1/4-1/2",
        }
    }
}

const GROUPS: [&str; 10] = [
    "slow, 1-8",
    "slow, 1/2",
    "slow, 1/4",
    "busy",
    "capped",
    "distance",
    "destination short",
    "fast, 1-8",
    "fast, 1/4-1/2",
    "changes",
];

fn main() {
    let (rules, scenarios) = (rules(), scenarios::scenarios());
    let outcomes: Vec<Vec<Outcome>> = rules
        .iter()
        .map(|(_, make)| scenarios.iter().map(|it| Model::run(it, make().as_mut())).collect())
        .collect();
    if std::env::args().any(|it| it == "each") {
        for (at, scenario) in scenarios.iter().enumerate() {
            println!("{}", scenario.name);
            for ((name, _), outcomes) in rules.iter().zip(&outcomes) {
                let Outcome { seconds, wire, processor } = outcomes[at];
                println!(
                    "    {name:18} {seconds:6.2} s, {wire:.3} of the bytes, {processor:5.1} s of processors"
                );
            }
        }
        return;
    }
    // The best fixed setting, by the clock.
    let oracle: Vec<Outcome> = (0..scenarios.len())
        .map(|at| {
            let fixed = (1..5).map(|rule| outcomes[rule][at]);
            fixed.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("four")
        })
        .collect();
    println!("|  | {} |", GROUPS.join(" | "));
    println!("|---|{}", "---|".repeat(GROUPS.len()));
    let rows = rules.iter().map(|it| it.0).chain(["the best fixed"]);
    for (name, row) in rows.zip(outcomes.iter().chain([&oracle])) {
        let cells: Vec<String> = GROUPS
            .iter()
            .map(|group_of| {
                let (mut count, mut time, mut bytes, mut worst) = (0.0, 0.0, 0.0, 0.0_f64);
                for (at, scenario) in scenarios.iter().enumerate() {
                    if group(scenario) == *group_of {
                        let (it, base) = (row[at], outcomes[0][at]);
                        count += 1.0;
                        time += (it.seconds / base.seconds).ln();
                        bytes += (it.wire / base.wire).ln();
                        worst = worst.max(it.seconds / base.seconds);
                    }
                }
                format!("{:.2} ({worst:.2}), {:.2}", (time / count).exp(), (bytes / count).exp())
            })
            .collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}
