//! Claims D7 and D12: kills the driver (which holds the sending proxy) or the receiver with SIGKILL, each in
//! a migration of its own, and counts the guests afterwards. One JSON document on standard output:
//!
//! ```text
//! PAGESHARE_KILLS=500 cargo bench -p pageshare --bench kills
//! ```
//!
//! Every fifth kill is aimed: the destination has loaded everything and said so, and its word is
//! held back between its QEMU and the receiver, so that the source cannot know. The others come at
//! random moments. `PAGESHARE_KILLS` says how many (100), `PAGESHARE_SEED` repeats a run,
//! `PAGESHARE_ROUND_TRIP` puts so many milliseconds between the proxies, and `PAGESHARE_CHANNELS` has
//! QEMU send pages by so many channels of multifd. Ends with an error if a guest is lost, doubled, or
//! has another memory than before.

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::time::Duration;

use lab::{Fate, Stage, Xorshift};
use serde_json::json;

/// One kill in so many is aimed.
const AIMED: u64 = 5;

fn main() {
    // Cargo calls a benchmark with arguments of its own.
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let (kills, seed) =
        (number("PAGESHARE_KILLS", 100), number("PAGESHARE_SEED", 0x9e37_79b9_7f4a_7c15));
    let (round_trip, channels) =
        (number("PAGESHARE_ROUND_TRIP", 0), number("PAGESHARE_CHANNELS", 0));
    let mut numbers = Xorshift(seed.max(1));
    let mut random = |below: u64| numbers.draw() % below;
    let (mut arrived, mut stayed, mut lost, mut doubled, mut changed) = (0, 0, 0, 0, 0);
    let (mut aimed, mut of_the_driver) = (0, 0);
    // Those that came when the migration had ended try nothing: others take their place.
    let (mut kill, mut late) = (0, 0);
    while kill - late < kills {
        let aim = kill % AIMED == 0;
        let kill_the_driver = random(2) == 0;
        let mut stage = if aim { Stage::holding() } else { Stage::set() };
        stage.slow(80);
        if round_trip > 0 {
            stage.apart(Duration::from_millis(round_trip));
        }
        if channels > 0 {
            stage.channels(channels);
        }
        let mut driver = stage.migrate(&[]);
        if aim {
            stage.wait_for_the_last_word();
            aimed += 1;
        } else {
            std::thread::sleep(Duration::from_millis(random(2500)));
        }
        let over = driver.try_wait().expect("our own child").is_some();
        late += u64::from(over);
        if !kill_the_driver {
            stage.receiver.kill();
        } else if !over {
            driver.kill().expect("our own child");
            of_the_driver += 1;
        }
        stage.release();
        driver.wait().expect("our own child");
        let (fate, said) = stage.resume();
        match fate {
            Fate::Arrived => arrived += 1,
            Fate::Stayed => stayed += 1,
            Fate::Lost => lost += 1,
            Fate::Doubled => doubled += 1,
            Fate::Changed => changed += 1,
        }
        if !matches!(fate, Fate::Arrived | Fate::Stayed) {
            eprintln!(
                "kill {kill}, aimed {aim}, of the driver {kill_the_driver}: {fate:?}: {said}"
            );
        }
        kill += 1;
        if kill % 10 == 0 {
            let done = kill - late;
            eprintln!("{done} of {kills} kills, {arrived} guests arrived, {stayed} stayed");
        }
    }
    let result = json!({
        "version": 2, "seed": seed, "kills": kills, "late": late, "aimed": aimed, "of_the_driver": of_the_driver,
        "round_trip_ms": round_trip, "channels": channels, "arrived": arrived, "stayed": stayed, "lost": lost, "doubled": doubled, "changed": changed,
    });
    println!("{result}");
    assert_eq!(arrived + stayed, kill, "{result}");
}
