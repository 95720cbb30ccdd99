//! What a command that fails says, and to whom: a sentence for people, an object for programs.

use crate::lab;

use std::process::Command;

use pageshare::scope::Scope;

fn said(arguments: &[&str]) -> String {
    ends_with(1, arguments)
}

fn ends_with(code: i32, arguments: &[&str]) -> String {
    let binary = env!("CARGO_BIN_EXE_pageshare");
    let output = Command::new(binary).args(arguments).output().expect("pageshare runs");
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_told_wherever_it_is_typed() {
    let long = format!("unix:/{}", "p".repeat(107));
    let send = ["send", "--insecure", "--to", "tcp:[::1]:1", "--listen"];
    let receive = ["receive", "--insecure", "--qemu", "unix:q", "--listen"];
    let migrate = ["migrate", "unix:q", "--insecure", "--to", "tcp:[::1]:1", "--to-qmp"];
    for before in [
        &send[..],
        &["send", "--insecure", "--listen", "unix:q", "--to"],
        &[&send[..], &["unix:q", "--metrics"]].concat(),
        &receive,
        &["receive", "--insecure", "--listen", "unix:l", "--qemu"],
        &[&receive[..], &["unix:l", "--metrics"]].concat(),
        &migrate,
        &[&migrate[..], &["unix:t", "--listen"]].concat(),
        &[&migrate[..], &["unix:t", "--incoming"]].concat(),
        &["migrate"],
    ] {
        let said = ends_with(2, &[before, &[&long]].concat());
        assert!(said.contains("at most 107 bytes"), "{before:?}: {said}");
    }
}

#[test]
fn more_memory_than_there_can_be_is_told_where_it_is_typed() {
    // As bytes it would be none at all.
    let much = (1_u64 << 44).to_string();
    let send = ["send", "--insecure", "--listen", "unix:/nowhere/l", "--to", "tcp:[::1]:1"];
    let receive = ["receive", "--insecure", "--listen", "unix:/nowhere/l", "--qemu", "unix:q"];
    for (command, option) in [
        (&send, "--delta-cache"),
        (&send, "--keep-quota"),
        (&receive, "--recent"),
        (&receive, "--keep-quota"),
    ] {
        let said = ends_with(2, &[&command[..], &[option, &much]].concat());
        assert!(said.contains(option) && said.contains(&much), "{said}");
    }
}

#[test]
fn a_command_says_its_error_as_one_plain_sentence() {
    let said = said(&["inspect", "/nowhere"]);
    assert_eq!(said, "pageshare: stream /nowhere: No such file or directory (os error 2)\n");
}

#[test]
fn what_others_have_named_controls_no_terminal() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let stream = directory.path().join("stream");
    let name = "a\x1b]0;\x07\u{9b}";
    let head = [b"QEVM\0\0\0\x03\x07\0\0\0", &[u8::try_from(name.len()).expect("short")][..]];
    let ram = b"\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04";
    std::fs::write(&stream, [&head.concat(), name.as_bytes(), ram].concat())
        .expect("the scratch directory is writable");
    let inspect = |more: &[&str]| {
        let mut program = Command::new(lab::binary());
        let output = program.arg("inspect").arg(&stream).args(more).output();
        String::from_utf8(output.expect("pageshare starts").stdout).expect("text")
    };
    let (text, json) = (inspect(&[]), inspect(&["--json"]));
    for said in [&text, &json, &said(&["inspect", &format!("/{name}")])] {
        assert!(said.contains(r"a\u001b]0;\u0007\u009b"), "{said}");
        assert!(!said.contains(|char: char| char.is_control() && char != '\n'), "{said}");
    }
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["machine"], name);
}

#[test]
fn a_proxys_log_has_no_colours_where_nobody_looks() {
    let scope = ["--scope", "/nowhere", "--insecure"];
    let proxy = ["receive", "--listen", "unix:/nowhere/in", "--qemu", "unix:/nowhere/out"];
    let said = said(&[&proxy[..], &scope[..]].concat());
    assert!(said.contains("ERROR") && !said.contains('\x1b'), "{said}");
}

#[test]
fn an_error_is_json_where_the_log_is() {
    let said = said(&["--log-format", "json", "inspect", "/nowhere"]);
    let line: serde_json::Value = serde_json::from_str(&said).expect("one JSON object");
    assert_eq!(line["level"], "ERROR");
}

#[test]
fn what_is_no_stream_is_refused_by_inspect() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let file = directory.path().join("bytes");
    let path = file.to_str().expect("a plain path");
    let mut random = lab::Xorshift(7);
    let noise: Vec<u8> = (0..4096).flat_map(|_| random.draw().to_le_bytes()).collect();
    for bytes in [&noise[..], b"", b"QEVM", &[b"QEVM\0\0\0\x03", &noise[..]].concat()] {
        std::fs::write(&file, bytes).expect("the scratch directory is writable");
        for arguments in [&["inspect", path][..], &["inspect", path, "--json"]] {
            let said = said(arguments);
            assert!(said.contains("nothing of a migration is in it"), "{said}");
        }
    }
}

#[test]
fn an_index_that_cannot_be_put_in_place_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a plain path").to_owned();
    let scope = at("scope.json");
    Scope::generate("test").and_then(|it| it.save(scope.as_ref())).expect("a new scope");
    std::fs::write(at("image"), [7; 4096]).expect("the scratch directory is writable");
    // A file does not take a directory's place.
    std::fs::create_dir(at("index")).expect("the scratch directory is writable");
    let source = format!("image:{}", at("image"));
    let said = said(&["index", "--scope", &scope, "--source", &source, "--out", &at("index")]);
    assert!(said.contains("Is a directory"), "{said}");
    let left = std::fs::read_dir(directory.path()).expect("readable").count();
    assert_eq!(left, ["image", "index", "scope.json"].len(), "what was written is left");
}
