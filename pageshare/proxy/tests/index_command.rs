//! `pageshare index --every` outlives what happens to its sources.

mod lab;

use std::fs::{read, remove_file, write};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use pageshare::scope::Scope;
use pageshare::sources::Library;
use pageshare_index::PAGE_SIZE;

/// A process that ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_index_that_is_kept_outlives_an_image_that_is_away_for_a_while() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| directory.path().join(name);
    let scope = lab::scope(directory.path(), "test");
    write(at("image"), [1; PAGE_SIZE]).expect("the scratch directory is writable");
    let index = Command::new(lab::binary())
        .args(["index", "--every", "1", "--scope", &scope, "--out"])
        .arg(at("index"))
        .arg(format!("--source=image:{}", at("image").display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("pageshare starts");
    let mut index = Kept(index);
    let mut log = BufReader::new(index.0.stderr.take().expect("it is piped")).lines();
    let mut says = |words: &str| {
        let said = log.by_ref().map_while(Result::ok).any(|line| line.contains(words));
        assert!(said, "it has ended and never said: {words}");
    };
    says("1 pages");
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
