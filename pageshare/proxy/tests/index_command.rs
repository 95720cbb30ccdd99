//! `pageshare index` outlives what happens to its sources, and shows nobody what it has found.

use crate::lab;

use std::fs::{read, remove_file, write};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::process::{Command, Stdio};

use pageshare::scope::Scope;
use pageshare::sources::Library;
use pageshare_index::PAGE_SIZE;

#[test]
fn an_index_that_is_kept_outlives_a_hangup_and_an_image_that_is_away_for_a_while() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let scope = lab::scope(directory.path(), "test");
    write(at("image"), [1; PAGE_SIZE]).expect("the scratch directory is writable");
    let index = lab::without_hangups()
        .args(["index", "--every", "1", "--scope", &scope, "--out"])
        .arg(at("index"))
        .arg(format!("--source=image:{}", at("image").display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("pageshare starts");
    let mut index = lab::Kept(index);
    let mut log = BufReader::new(index.stderr.take().expect("it is piped")).lines();
    let mut says = |words: &str| {
        let said = log.by_ref().map_while(Result::ok).any(|line| line.contains(words));
        assert!(said, "it has ended and never said: {words}");
    };
    says("1 pages");
    lab::signal("HUP", index.id());
    let before = read(at("index")).expect("an index was written");
    remove_file(at("image")).expect("it is there");
    says("the index written before stays");
    assert_eq!(read(at("index")).expect("it stays"), before);
    write(at("image"), [[2; PAGE_SIZE], [3; PAGE_SIZE]].concat()).expect("as before");
    says("2 pages");
    let key = Scope::load(scope.as_ref()).expect("a scope").key.hash_key();
    let library = Library::load(&at("index"), key.clone()).expect("what was just written");
    assert!(library.copy(key.hash(&[3; PAGE_SIZE]), &mut [0; PAGE_SIZE]));
}

/// `pageshare index` of one page in a directory, with these words more.
fn index(directory: &std::path::Path, words: &[&str]) -> std::process::Output {
    let at = |name: &str| directory.join(name);
    write(at("image"), [1; PAGE_SIZE]).expect("the scratch directory is writable");
    Command::new(lab::binary())
        .args(["index", "--scope", &lab::scope(directory, "test"), "--out"])
        .arg(at("index"))
        .arg(format!("--source=image:{}", at("image").display()))
        .args(words)
        .output()
        .expect("pageshare starts")
}

#[test]
fn an_index_is_its_owners_alone_whatever_was_left_there() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    write(at("another"), "somebody's").expect("the scratch directory is writable");
    // By somebody who may write there, and knows how files were named.
    for link in ["index", "index.new"] {
        std::os::unix::fs::symlink("another", at(link)).expect("the scratch directory is writable");
    }
    let output = index(directory.path(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = std::fs::symlink_metadata(at("index")).expect("an index");
    assert!(written.is_file());
    assert_eq!(written.permissions().mode() & 0o777, 0o600);
    assert_eq!(read(at("another")).expect("it stays"), b"somebody's");
    let left = std::fs::read_dir(directory.path()).expect("readable").count();
    assert_eq!(left, ["another", "image", "index", "index.new", "test.json"].len());
}

/// One is killed while it writes, and another may be at work.
#[test]
fn what_is_left_beside_an_index_by_one_that_was_killed_goes_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let (left, written) = ("index.0123456789abcdef.new", "index.fedcba9876543210.new");
    let others = [
        "index.0123456789abcde.new",
        "index.0123456789ABCDEF.new",
        "index.0123456789abcdef",
        "other.0123456789abcdef.new",
    ];
    for name in [left, written].iter().chain(&others) {
        write(at(name), "a part").expect("the scratch directory is writable");
    }
    let other = std::fs::File::open(at(written)).expect("it is there");
    other.lock().expect("a file system with locks");
    let output = index(directory.path(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stays = |name: &&str| at(name).exists();
    assert!(!stays(&left) && stays(&written) && others.iter().all(stays));
}

#[test]
fn only_an_index_gives_way_to_an_index() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let index = |words: &[&str]| {
        let output = index(directory.path(), words);
        remove_file(at("test.json")).expect("its scope, which the next one makes anew");
        output
    };
    for words in ["some image", "x"] {
        write(at("index"), words).expect("the scratch directory is writable");
        let output = index(&[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("what is there is no index, and stays"), "{said}");
        assert_eq!(read(at("index")).expect("it stays"), words.as_bytes());
    }
    write(at("index"), "").expect("the scratch directory is writable");
    for _ in 0..2 {
        let output = index(&[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = index(&["--threads", "100000"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("1024"), "{said}");
}

#[test]
fn a_pipe_is_neither_an_image_nor_does_it_give_way_to_an_index() {
    for (name, reason) in [
        ("pipe", "neither a file nor a block device"),
        ("index", "what is there is no file, and stays"),
    ] {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("coreutils");
        assert!(made.success());
        let output = index(directory.path(), &[&format!("--source=image:{}", path.display())]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(reason), "{said}");
        let kind = std::fs::symlink_metadata(&path).expect("it stays").file_type();
        assert!(kind.is_fifo());
    }
}

#[test]
fn an_index_is_not_made_anew_without_a_pause() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let output = index(directory.path(), &["--every", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--every") && said.contains("0 is not in 1.."), "{said}");
}
