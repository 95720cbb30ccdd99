//! `pageshare plan` says where each VM of a host would go at the least cost.

use crate::lab;
use crate::selectors::Named;

use std::path::Path;
use std::process::{Command, Output};

use pageshare::scope::Scope;

fn pageshare(words: &[&str]) -> Output {
    Command::new(lab::binary()).args(words).output().expect("pageshare starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn each_vm_goes_where_its_pages_are() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "test");
    let key = Scope::load(scope.as_ref()).expect("a scope").key.hash_key();
    let names = ["a", "b"].map(|vm| format!("plan-{vm}-of-{}", std::process::id()));
    let vms: Vec<_> =
        (3..).zip(&names).map(|(seed, it)| Named::start(directory.path(), it, seed)).collect();
    // As if one host had what the first has, and another what the second has.
    let mut words = vec!["plan".to_owned(), "--scope".into(), scope.clone(), "--sample=1".into()];
    for (vm, host) in vms.iter().zip(["one", "two"]) {
        vm.loaded(&key);
        let out = directory.path().join(host).display().to_string();
        let source = format!("pid:{}", vm.qemu.id());
        let index = pageshare(&["index", "--scope", &scope, "--source", &source, "--out", &out]);
        assert!(index.status.success(), "{}", said(&index));
        words.extend(["--there".to_owned(), format!("{host}={out}")]);
    }
    words.push(format!("--source=qemu:name=plan-?-of-{}", std::process::id()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();

    let output = pageshare(&[&words[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for (name, host) in names.iter().zip(["one", "two"]) {
        let vms = found.as_array().expect("VMs");
        let vm = vms.iter().find(|vm| vm["name"] == **name).expect("both were meant");
        let (best, other) = (&vm["to"][0], &vm["to"][1]);
        assert_eq!(best["host"], host, "{found}");
        let share = |to: &serde_json::Value| to["found_share"].as_f64().expect("a share");
        assert!(share(best) > share(other), "{found}");
        assert!(best["index_age_seconds"].as_f64().is_some(), "{found}");
    }

    let output = pageshare(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [&names[0], &names[1], "one", "two", "found there", "all, one after another"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    // More than there are pages.
    let words =
        words.into_iter().map(|word| if word == "--sample=1" { "--sample=1000000" } else { word });
    let output = pageshare(&words.collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("lower --sample"), "{}", said(&output));
}

#[test]
fn what_cannot_be_planned_is_said() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let scope = lab::scope(directory.path(), "test");
    let plan = |source: &str, there: &str| {
        let output = pageshare(&["plan", "--scope", &scope, "--source", source, "--there", there]);
        assert_eq!(output.status.code(), Some(1));
        said(&output)
    };
    let absent = directory.path().join("absent").display().to_string();
    assert!(plan("image:/tmp/x", "here=/x").contains("image:/tmp/x is no VM"));
    assert!(plan("qemu:all", &absent).contains("write HOST=FILE"));
    assert!(plan("qemu:all", &format!("here={absent}")).contains("index"));
    let empty = empty_index(directory.path(), &scope);
    let none = plan("qemu:name=nobody-is-called-so", &format!("here={empty}"));
    assert!(none.contains("no QEMU of this host is qemu:name=nobody-is-called-so"), "{none}");
}

fn empty_index(directory: &Path, scope: &str) -> String {
    let at = |name: &str| directory.join(name).display().to_string();
    std::fs::write(at("image"), []).expect("the scratch directory is writable");
    let source = format!("image:{}", at("image"));
    let index = pageshare(&["index", "--scope", scope, "--source", &source, "--out", &at("index")]);
    assert!(index.status.success(), "{}", said(&index));
    at("index")
}
