//! The one place where it is decided who runs, from what both monitors say.

/// What one monitor says of its guest and of the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// QEMU's run state: `running`, `paused`, `postmigrate`, `inmigrate`, ...
    pub run_state: String,
    /// Status of the migration away from there, or of one that is coming: `active`, `completed`,
    /// `failed`, ...; empty before the first, and when one has come.
    pub migration: String,
}

/// What is known of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum There {
    /// Its monitor has just said so.
    Seen(Seen),
    /// Its monitor cannot be asked.
    Lost {
        /// What is known instead.
        how: Loss,
        /// For longer than a tunnel takes to come back.
        long: bool,
    },
}

/// Why the destination's monitor cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its QEMU was told to end and has said that it does.
    Ended,
    /// Nobody listens at its address: its QEMU has ended, or the tunnel that led there has.
    Refused,
    /// It gives no answer: its QEMU may live.
    Silent,
}

/// How a migration ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The guest is at the destination.
    Arrived {
        /// `running`, or how its operator left it; empty where that was a while ago.
        run_state: String,
    },
    /// The guest is at the source, as before; and what is known of the destination.
    Stayed(Loss),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Neither side has decided yet: look again.
    Wait,
    /// Nobody could let the destination run: the source is to give up while it still can.
    Cancel,
    /// The source has handed its guest over, at its end or as postcopy begins: let the destination
    /// run.
    Start,
    /// The source has its guest; the destination's QEMU is to end.
    Discard,
    /// The source has its guest, which ran before and stands still: it is to run again.
    TakeBack,
    /// There is one guest, and it is as it should be.
    End(Outcome),
    /// What an operator must decide, in words.
    Ask(String),
}

/// Decides. A guest that its operator has `paused` at the source stays so wherever it is. One that
/// `ran_there`, at the destination, is nowhere else: what the source has is older.
#[must_use]
pub fn decide(source: &Seen, there: &There, paused: bool, ran_there: bool) -> Action {
    match (source.migration.as_str(), source.run_state.as_str()) {
        ("completed", "running") => Action::Ask(
            "the source has completed its migration and runs all the same: someone let it; end \
             the destination if it has not been let run"
                .into(),
        ),
        ("completed", _) => handed_over(there, paused),
        ("" | "none" | "failed" | "cancelled", _) if ran_there => Action::Ask(
            "the source has given up a migration whose guest has run at the destination since: the \
             guest there is the only one that is as it should be, so end neither QEMU. If it runs \
             there, or does so after `cont` at that monitor, it lacked nothing; what the source has \
             is the guest as it was at the switch"
                .into(),
        ),
        ("" | "none" | "failed" | "cancelled", run_state) => kept(run_state, there, paused),
        (status, _) if can_be_cancelled(status) => match there {
            There::Lost { long: true, .. } => Action::Cancel,
            There::Lost { .. } | There::Seen(_) => Action::Wait,
        },
        ("postcopy-paused", _) => match there {
            There::Lost { long: false, .. } => Action::Wait,
            There::Lost { .. } | There::Seen(_) => Action::Ask(
                "the way between the two QEMUs was cut in postcopy: the guest is at the destination \
                 and pages of it are still at the source, so end neither. `migrate-recover` at the \
                 destination's monitor (out of band: its main thread may wait for a page) and \
                 `migrate` with `resume` at the source's go on, directly or through a new `pageshare receive` and `send`"
                    .into(),
            ),
        },
        (status, _) if has_switched(status) => match there {
            // As QEMU leaves a guest whose pages are still to come and that may not start by itself.
            There::Seen(seen) if seen.run_state == "paused" && !paused => Action::Start,
            There::Lost { .. } | There::Seen(_) => Action::Wait,
        },
        _ => Action::Wait,
    }
}

/// Whether the source still has its guest and can be told to keep it. Once postcopy has begun, the
/// destination may have let it run, and QEMU (9.0) would give up all the same; later ones refuse to.
pub(super) fn can_be_cancelled(status: &str) -> bool {
    matches!(status, "setup" | "wait-unplug" | "active" | "pre-switchover" | "device")
}

/// Whether the guest is the destination's and its pages are still to come: the source cannot run it
/// any more, as it does if something fails before that (`postcopy-device`, QEMU 10.2 on).
pub(super) fn has_switched(status: &str) -> bool {
    matches!(status, "postcopy-active" | "postcopy-recover-setup" | "postcopy-recover")
}

/// Whether a migration of this status may go on for as long as it likes: guest or operator decide.
pub(super) fn takes_its_time(status: &str) -> bool {
    matches!(status, "setup" | "wait-unplug" | "active" | "postcopy-paused") || has_switched(status)
}

/// Whether the destination may have every byte of the guest and be too busy to answer. QEMU before 10.0
/// says `active` until it is known to have loaded.
pub(super) fn may_be_loading(source: &Seen) -> bool {
    let source = (source.migration.as_str(), source.run_state.as_str());
    matches!(
        source,
        ("pre-switchover" | "device" | "postcopy-device" | "completed", _)
            | ("active", "finish-migrate")
    )
}

/// The source has completed.
fn handed_over(there: &There, paused: bool) -> Action {
    let seen = match there {
        There::Seen(seen) => seen,
        There::Lost { long: false, .. } => return Action::Wait,
        There::Lost { .. } => {
            return Action::Ask(
                "the source has handed its guest over and the destination's monitor does not \
                 answer. If its QEMU has certainly ended, `cont` at the source's monitor takes \
                 the guest back, unharmed; if it may still run, that would run it twice"
                    .into(),
            );
        }
    };
    match seen.run_state.as_str() {
        "inmigrate" | "finish-migrate" | "restore-vm" => Action::Wait,
        // As QEMU leaves a guest that has arrived and may not start by itself.
        "paused" if !paused => Action::Start,
        // A guest that sleeps wakes by itself; `cont` does nothing to it.
        "running" | "suspended" | "paused" => {
            Action::End(Outcome::Arrived { run_state: seen.run_state.clone() })
        }
        other => Action::Ask(format!(
            "the source has handed its guest over, and the destination's QEMU is `{other}`, as no \
             guest is that has arrived and can run. If it is another QEMU than the guest was sent \
             to, letting it run would start something else on the guest's disks: end it, and \
             `cont` at the source's monitor takes the guest back, unharmed. If the guest stood \
             like that at the source, it has arrived"
        )),
    }
}

/// The source has not migrated, or no longer does.
fn kept(run_state: &str, there: &There, paused: bool) -> Action {
    match (run_state, there) {
        (_, There::Seen(seen)) if matches!(seen.run_state.as_str(), "running" | "suspended") => {
            Action::Ask(
                "the destination runs although the source did not complete its migration: \
                 someone let it; end one of the two by hand"
                    .into(),
            )
        }
        // QEMU itself is about to let its guest run again.
        ("finish-migrate" | "save-vm", _) => Action::Wait,
        (_, There::Seen(_)) => Action::Discard,
        (_, There::Lost { how: Loss::Silent, long: false }) => Action::Wait,
        // So QEMU 7.2 leaves a guest that was paused, or stopped for a postcopy that failed at once.
        ("postmigrate", There::Lost { how: Loss::Silent, .. }) if !paused => Action::Ask(
            "the source has its guest, which stands still, and the destination's monitor does not \
             answer. If the guest does not run there, end that QEMU, and `cont` at the source's \
             monitor lets the guest run"
                .into(),
        ),
        ("postmigrate", There::Lost { .. }) if !paused => Action::TakeBack,
        (_, There::Lost { how, .. }) => Action::End(Outcome::Stayed(*how)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(run_state: &str, migration: &str) -> Seen {
        Seen { run_state: run_state.into(), migration: migration.into() }
    }

    fn there(run_state: &str) -> There {
        There::Seen(seen(run_state, ""))
    }

    fn lost(how: Loss, long: bool) -> There {
        There::Lost { how, long }
    }

    const RUN_STATES: [&str; 9] = [
        "running",
        "paused",
        "postmigrate",
        "inmigrate",
        "finish-migrate",
        "prelaunch",
        "internal-error",
        "shutdown",
        "suspended",
    ];
    const STATUSES: [&str; 15] = [
        "",
        "setup",
        "wait-unplug",
        "active",
        "pre-switchover",
        "device",
        "postcopy-device",
        "postcopy-active",
        "postcopy-paused",
        "completed",
        "failing",
        "failed",
        "cancelled",
        "cancelling",
        "colo",
    ];

    /// Calls with everything that both monitors can say, and what is decided.
    fn for_all(mut check: impl FnMut(&Seen, &There, bool, Action)) {
        let losses = [Loss::Ended, Loss::Refused, Loss::Silent];
        let losses = losses.into_iter().flat_map(|how| [lost(how, false), lost(how, true)]);
        let theres: Vec<There> = RUN_STATES.into_iter().map(there).chain(losses).collect();
        for here in RUN_STATES {
            for status in STATUSES {
                for there in &theres {
                    for paused in [false, true] {
                        let source = seen(here, status);
                        check(&source, there, paused, decide(&source, there, paused, false));
                    }
                }
            }
        }
    }

    #[test]
    fn only_an_arrived_guest_is_let_run_and_only_when_the_source_can_run_it_no_more() {
        for_all(|source, at_destination, paused, action| {
            if action == Action::Start {
                let status = source.migration.as_str();
                let over = status == "completed" && source.run_state != "running";
                assert!(over || status == "postcopy-active", "{source:?}");
                assert_eq!(*at_destination, there("paused"));
                assert!(!paused);
            }
        });
    }

    #[test]
    fn a_guest_whose_pages_are_still_to_come_is_let_run() {
        let source = seen("finish-migrate", "postcopy-active");
        assert_eq!(decide(&source, &there("inmigrate"), false, false), Action::Wait);
        assert_eq!(decide(&source, &there("paused"), false, false), Action::Start);
        assert_eq!(decide(&source, &there("paused"), true, false), Action::Wait);
        assert_eq!(decide(&source, &there("running"), false, false), Action::Wait);
    }

    #[test]
    fn the_source_is_let_run_only_when_it_has_failed_and_the_destination_has_ended() {
        for_all(|source, there, paused, action| {
            if action == Action::TakeBack {
                let status = source.migration.as_str();
                assert!(matches!(status, "" | "failed" | "cancelled"), "{status}");
                let ended = matches!(there, There::Lost { how: Loss::Ended | Loss::Refused, .. });
                assert!(ended, "{there:?}: it may run");
                assert!(!paused);
            }
        });
    }

    #[test]
    fn a_guest_that_has_run_at_the_destination_is_ended_there_by_nobody_and_runs_nowhere_else() {
        for_all(|source, there, paused, _| {
            let action = decide(source, there, paused, true);
            let taken = matches!(action, Action::Discard | Action::TakeBack);
            assert!(!taken, "{source:?} {there:?}: {action:?}");
            if matches!(source.migration.as_str(), "failed" | "cancelled") {
                assert!(matches!(action, Action::Ask(_)), "{source:?} {there:?}: {action:?}");
            }
        });
    }

    #[test]
    fn a_migration_is_given_up_only_while_the_source_has_the_guest_and_the_destination_is_gone() {
        for_all(|source, there, _, action| {
            let gone = matches!(there, There::Lost { long: true, .. });
            assert_eq!(action == Action::Cancel, gone && can_be_cancelled(&source.migration));
        });
        for status in ["postcopy-active", "postcopy-paused", "completed", "failed", "cancelling"] {
            assert!(!can_be_cancelled(status), "{status}");
        }
    }

    #[test]
    fn nothing_is_decided_while_the_way_to_the_destination_may_come_back() {
        for_all(|source, there, _, action| {
            // Whatever the destination says, an operator must look.
            let runs_on = source.migration == "completed" && source.run_state == "running";
            if *there == lost(Loss::Silent, false) && !runs_on {
                assert_eq!(action, Action::Wait, "{source:?}");
            }
        });
    }

    #[test]
    fn a_guest_that_was_handed_over_and_lost_is_left_to_the_operator() {
        let source = seen("postmigrate", "completed");
        for how in [Loss::Ended, Loss::Refused, Loss::Silent] {
            assert!(matches!(decide(&source, &lost(how, true), false, false), Action::Ask(_)));
        }
    }

    #[test]
    fn a_guest_that_stays_is_not_said_to_be_alone_before_the_destination_has_ended() {
        let source = seen("running", "failed");
        assert_eq!(decide(&source, &there("inmigrate"), false, false), Action::Discard);
        for how in [Loss::Ended, Loss::Refused, Loss::Silent] {
            let stayed = Action::End(Outcome::Stayed(how));
            assert_eq!(decide(&source, &lost(how, true), false, false), stayed);
        }
    }

    #[test]
    fn a_guest_that_was_paused_stays_paused_at_either_side() {
        let arrived = Outcome::Arrived { run_state: "paused".into() };
        let source = seen("postmigrate", "completed");
        assert_eq!(decide(&source, &there("paused"), true, false), Action::End(arrived));
        let source = seen("postmigrate", "failed");
        let stayed = Action::End(Outcome::Stayed(Loss::Ended));
        assert_eq!(decide(&source, &lost(Loss::Ended, true), true, false), stayed);
        assert_eq!(decide(&source, &lost(Loss::Ended, true), false, false), Action::TakeBack);
    }

    #[test]
    fn a_guest_that_sleeps_has_arrived() {
        let arrived = Outcome::Arrived { run_state: "suspended".into() };
        let source = seen("postmigrate", "completed");
        assert_eq!(decide(&source, &there("suspended"), false, false), Action::End(arrived));
    }

    #[test]
    fn what_holds_no_guest_that_has_arrived_is_left_to_the_operator() {
        let source = seen("postmigrate", "completed");
        for other in ["prelaunch", "internal-error", "shutdown", "postmigrate"] {
            assert!(
                matches!(decide(&source, &there(other), false, false), Action::Ask(_)),
                "{other}"
            );
        }
    }

    #[test]
    fn a_silent_destination_is_not_waited_for_when_the_source_has_given_up() {
        for status in STATUSES {
            let over = matches!(status, "" | "failing" | "failed" | "cancelled" | "cancelling");
            let waits = |run_state| may_be_loading(&seen(run_state, status));
            assert!(!(waits("running") && (over || takes_its_time(status))), "{status}");
            assert!(!(waits("finish-migrate") && over), "{status}");
        }
        assert!(may_be_loading(&seen("postmigrate", "completed")));
        assert!(may_be_loading(&seen("finish-migrate", "postcopy-device")));
        // As QEMU says it from 10.0 on, and before.
        for status in ["device", "active"] {
            assert!(may_be_loading(&seen("finish-migrate", status)), "{status}");
        }
    }

    #[test]
    fn postcopy_takes_its_time_and_what_comes_behind_a_transfer_does_not() {
        for status in STATUSES {
            let long = matches!(
                status,
                "setup" | "wait-unplug" | "active" | "postcopy-active" | "postcopy-paused"
            );
            assert_eq!(takes_its_time(status), long, "{status}");
        }
    }
}
