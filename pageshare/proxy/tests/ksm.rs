//! The paper's candidates, with the real KSM: it is switched on for this test, and back.

mod lab;

use lab::{Guest, Pair};
use pageshare::scope::Scope;
use serde_json::json;

const KSM: &str = "/sys/kernel/mm/ksm";

/// KSM running; its settings come back when this is dropped.
struct Running([(&'static str, String); 2]);

impl Running {
    fn start() -> Self {
        let before = ["run", "pages_to_scan"].map(|name| {
            let value = std::fs::read_to_string(format!("{KSM}/{name}"))
                .expect("the kernel has KSM (CONFIG_KSM)");
            (name, value)
        });
        for (name, value) in [("pages_to_scan", "5000"), ("run", "1")] {
            std::fs::write(format!("{KSM}/{name}"), value).expect("only root may switch KSM");
        }
        Self(before)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            // Nothing more can be done about it here.
            let _ = std::fs::write(format!("{KSM}/{name}"), value.trim());
        }
    }
}

#[test]
fn only_pages_that_ksm_has_merged_are_asked_for_and_the_guest_arrives() {
    let (mut source, mut destination) = (Guest::running(), Guest::awaiting());
    let neighbour = Guest::running();
    source.command("random", "FILLED");
    let before = source.checksum();
    let ksm = Running::start();
    // Other guests on this machine are merged too: only the source's own pages count.
    let merged = format!("/proc/{}/ksm_merging_pages", source.pid());
    lab::wait_for("KSM to merge what the two guests share", || {
        let merged = std::fs::read_to_string(&merged).ok()?;
        (merged.trim().parse::<u64>().ok()? > 4000).then_some(())
    });

    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("scope.json");
    Scope::generate("test").and_then(|scope| scope.save(&file)).expect("a new scope");
    let scope = file.to_str().expect("a plain path");
    let mut pair = Pair::unix(
        &["--scope", scope, "--ask", "always", "--ksm-pid", &source.pid().to_string()],
        &["--scope", scope, "--source", &format!("pid:{}", neighbour.pid())],
    );
    for guest in [&mut source, &mut destination] {
        guest.capabilities(&["return-path"]);
    }
    source.execute("migrate-set-parameters", json!({"max-bandwidth": 1_u64 << 40}));
    destination.listen(&pair.from);
    source.migrate(&pair.to);
    assert_eq!(source.migration_end(), "completed", "{}", pair.logs());
    drop(ksm);
    destination.resume();
    assert_eq!(destination.checksum(), before);

    let sent = pair.send.record();
    let count = |name: &str| sent[name].as_u64().expect("a number in the record");
    assert!(count("pages_asked") > 1000, "{sent}");
    // The random pages of this guest alone are 12 MiB; KSM cannot have merged them.
    assert!(count("pages_asked") + 3000 < count("pages"), "{sent}");
    assert!(count("pages_referenced") * 10 > count("pages_asked") * 8, "precision: {sent}");
}
