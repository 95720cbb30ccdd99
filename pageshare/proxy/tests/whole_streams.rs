//! What the destination QEMU reads is what the source QEMU wrote, byte for byte, with what QEMU can
//! do to its stream, in both QEMUs that are to be had.

use crate::lab;

use lab::{Guest, Incoming, Model, Pair, Tap};
use serde_json::{Value, json};

/// Two guests of one model, the proxies between them, and a tap at either end.
pub(crate) struct Way {
    source: Guest,
    destination: Guest,
    pair: Pair,
    taps: [Tap; 2],
    to: String,
    checksum: String,
}

impl Way {
    fn between(from: &Model, to: &Model, capabilities: &[&str]) -> Self {
        let pair = Pair::unix(&["--ask", "always", "--compress", "always"], &[]);
        Self::through(pair, from, to, capabilities)
    }

    pub(crate) fn through(pair: Pair, from: &Model, to: &Model, capabilities: &[&str]) -> Self {
        let mut source = Guest::running_on(from);
        let mut destination = Guest::start(to, &Incoming::Deferred);
        let at = |name: &str| pair.directory().join(name);
        let (to, incoming) = (at("tap-out"), at("qemu-in"));
        let taps = [Tap::start(&to, &at("out")), Tap::start(&at("in"), &incoming)];
        for guest in [&mut source, &mut destination] {
            guest.capabilities(capabilities);
        }
        source.execute("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
        destination.listen(&format!("unix:{}", incoming.display()));
        let checksum = source.checksum();
        Self { source, destination, pair, taps, to: format!("unix:{}", to.display()), checksum }
    }

    pub(crate) fn migrate(&mut self) {
        self.source.migrate(&self.to);
    }

    /// Checks both ends once the migration is over; returns the sender's record.
    fn arrive(self, channels: usize) -> Value {
        let ([sent, _], _) = self.arrived(channels);
        sent
    }

    /// The same; returns both proxies' records, and what they have said.
    pub(crate) fn arrived(mut self, channels: usize) -> ([Value; 2], [String; 2]) {
        assert_eq!(self.source.migration_end(), "completed", "{}", self.pair.logs());
        if self.destination.state() != "running" {
            self.destination.resume();
        }
        assert_eq!(self.destination.checksum(), self.checksum);
        let [written, read] = self.taps.map(|tap| tap.passed(channels));
        assert_eq!(written.len(), channels);
        assert_eq!(written, read, "{}", self.pair.logs());
        let sent = self.pair.send.record();
        assert_eq!(sent["error"], json!(null), "{}", self.pair.logs());
        let records = [sent, self.pair.receive.record()];
        (records, [self.pair.send.log(), self.pair.receive.log()])
    }
}

fn why(record: &Value) -> String {
    record["verbatim"][0]["why"].as_str().unwrap_or_default().to_owned()
}

const AFTER_RAM: &str = "RAM is complete, device state follows";

fn pages_of_multifd_channels_arrive(model: &Model) {
    let mut way = Way::between(model, model, &["return-path", "multifd"]);
    way.migrate();
    let sent = way.arrive(3);
    assert_eq!(sent["verbatim"].as_array().map(Vec::len), Some(1), "{sent}");
    assert_eq!(why(&sent), AFTER_RAM);
    assert!(sent["pages"].as_u64() > Some(1000), "{sent}");
}

fn memory_that_both_map_does_not_travel(model: &Model) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let model = model.clone().with_memory(directory.path().join("memory"));
    let mut way = Way::between(&model, &model, &["return-path", "x-ignore-shared"]);
    way.migrate();
    let sent = way.arrive(1);
    assert_eq!(why(&sent), AFTER_RAM);
    assert!(sent["stream_bytes"].as_u64() < Some(4 << 20), "{sent}");
}

fn pages_that_travel_after_the_guest_arrive(model: &Model, more: &[&str], channels: usize) {
    let mut way = Way::between(model, model, &[&["return-path", "postcopy-ram"], more].concat());
    way.source.command("dirty", "DIRTYING");
    way.source.execute("migrate-set-parameters", json!({"max-bandwidth": 8 << 20}));
    way.migrate();
    lab::wait_for("bytes to flow", || {
        let info = way.source.execute("query-migrate", json!({}));
        (info["ram"]["transferred"].as_u64() > Some(1 << 20)).then_some(())
    });
    way.source.execute("migrate-start-postcopy", json!({}));
    lab::wait_for("the guest to go first", || {
        (way.destination.state() == "paused").then(|| way.destination.resume())
    });
    let sent = way.arrive(channels);
    assert!(sent["verbatim"].to_string().contains("postcopy"), "{sent}");
    assert!(sent["pages"].as_u64() > Some(100), "what came before the switch was parsed: {sent}");
}

#[test]
fn deltas_of_pages_arrive() {
    let model = Model::installed();
    let mut way = Way::between(&model, &model, &["return-path", "xbzrle"]);
    way.source.command("dirty", "DIRTYING");
    way.source.execute("migrate-set-parameters", json!({"max-bandwidth": 64 << 20}));
    way.migrate();
    assert_eq!(why(&way.arrive(1)), AFTER_RAM);
}

#[test]
fn pages_of_multifd_channels_arrive_in_the_installed_qemu() {
    pages_of_multifd_channels_arrive(&Model::installed());
}

#[test]
fn memory_that_both_map_does_not_travel_in_the_installed_qemu() {
    memory_that_both_map_does_not_travel(&Model::installed());
}

#[test]
fn pages_that_travel_after_the_guest_arrive_in_the_installed_qemu() {
    pages_that_travel_after_the_guest_arrive(&Model::installed(), &[], 1);
}

#[test]
fn pages_that_the_guest_waits_for_overtake_the_others_in_the_installed_qemu() {
    let (capability, channels) = (["postcopy-preempt"], 2);
    pages_that_travel_after_the_guest_arrive(&Model::installed(), &capability, channels);
}

/// The QEMUs that are unpacked beside the installed one.
fn newer_ones() -> impl Iterator<Item = Model> {
    [Model::newer(), Model::newest()].into_iter().flatten()
}

#[test]
fn pages_of_multifd_channels_arrive_in_newer_qemus() {
    newer_ones().for_each(|model| pages_of_multifd_channels_arrive(&model));
}

#[test]
fn memory_that_both_map_does_not_travel_in_newer_qemus() {
    newer_ones().for_each(|model| memory_that_both_map_does_not_travel(&model));
}

#[test]
fn pages_that_travel_after_the_guest_arrive_in_newer_qemus() {
    newer_ones().for_each(|model| pages_that_travel_after_the_guest_arrive(&model, &[], 1));
}

#[test]
fn pages_that_the_guest_waits_for_overtake_the_others_in_newer_qemus() {
    let (capability, channels) = (["postcopy-preempt"], 2);
    newer_ones().for_each(|model| {
        pages_that_travel_after_the_guest_arrive(&model, &capability, channels);
    });
}

/// QEMU 10.1 and later: pages travel in several channels until the guest goes.
#[test]
fn pages_that_travel_in_several_channels_and_then_after_the_guest_arrive_in_the_newest_qemu() {
    if let Some(model) = Model::newest() {
        pages_that_travel_after_the_guest_arrive(&model, &["multifd"], 3);
    }
}

#[test]
fn newer_qemus_tell_when_they_switch_over() {
    for model in newer_ones() {
        let mut way = Way::between(&model, &model, &["return-path"]);
        way.migrate();
        let sent = way.arrive(1);
        assert_eq!(why(&sent), AFTER_RAM);
        assert!(sent["pages"].as_u64() > Some(1000), "{sent}");
    }
}

#[test]
fn pages_behind_virtio_mem_are_seen_in_newer_qemus() {
    for model in newer_ones().map(Model::with_virtio_mem) {
        let mut way = Way::between(&model, &model, &["return-path"]);
        way.migrate();
        let sent = way.arrive(1);
        assert_eq!(why(&sent), AFTER_RAM);
        assert_eq!(sent["verbatim_bytes"], 0, "{sent}");
        assert!(sent["pages_asked"].as_u64() > Some(1000), "{sent}");
    }
}

#[test]
fn a_guest_goes_from_each_qemu_to_every_newer_one() {
    let models: Vec<Model> = [Model::installed()].into_iter().chain(newer_ones()).collect();
    for (at, older) in models.iter().enumerate() {
        for newer in &models[at + 1..] {
            let newer = newer.clone().with_machine_of(older);
            let mut way = Way::between(older, &newer, &["return-path"]);
            way.migrate();
            let sent = way.arrive(1);
            assert_eq!(why(&sent), AFTER_RAM);
            assert_eq!(sent["verbatim_bytes"], 0, "{sent}");
        }
    }
}
