//! Pages of qcow2 images are found, compressed or not, and no image can do harm.

use crate::lab;

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::Xorshift;
use pageshare::sources::{Library, SourceSpec, rescan, scan};
use pageshare_index::{HashKey, PAGE_SIZE, ScopeKey};

/// Where a qcow2 image has what an attacker would turn: its header and the first clusters.
const METADATA: usize = 20 << 10;

fn key() -> HashKey {
    ScopeKey([1; 32]).hash_key()
}

fn library(image: &Path) -> Library {
    scan(&[SourceSpec::Image(image.to_owned())], &key(), 1).expect("the image is there").library
}

/// Pages that compress, each another.
fn pages() -> Vec<[u8; PAGE_SIZE]> {
    let page = |number: u16| {
        let words = (0_u16..).map(|at| (number * 7 + at % 97).to_le_bytes());
        let bytes: Vec<u8> = words.flatten().take(PAGE_SIZE).collect();
        bytes.try_into().expect("a page")
    };
    (1..=700).map(page).collect()
}

/// An image that holds these pages, with holes between some of them.
fn image(directory: &Path, pages: &[[u8; PAGE_SIZE]], options: &[&str]) -> PathBuf {
    let (raw, image) = (directory.join("raw"), directory.join("image.qcow2"));
    let mut content = Vec::new();
    for some in pages.chunks(128) {
        content.extend(some.concat());
        content.resize(content.len() + (1 << 20), 0);
    }
    std::fs::write(&raw, content).expect("the scratch directory is writable");
    let made = Command::new(lab::required("/usr/bin/qemu-img", "qemu-utils"))
        .args(["convert", "-f", "raw", "-O", "qcow2"])
        .args(options)
        .args([&raw, &image])
        .status();
    assert!(made.expect("qemu-img starts").success());
    image
}

fn found(library: &Library, pages: &[[u8; PAGE_SIZE]]) -> usize {
    let there = |page: &&[u8; PAGE_SIZE]| {
        let mut copy = [0; PAGE_SIZE];
        library.copy(key().hash(*page), &mut copy) && copy == **page
    };
    pages.iter().filter(there).count()
}

#[test]
fn pages_of_an_image_are_found_whether_compressed_or_not() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let pages = pages();
    for options in [
        &[][..],
        &["-c"],
        &["-c", "-o", "compat=0.10"],
        &["-c", "-o", "cluster_size=2M"],
        &["-c", "-o", "cluster_size=4k"],
    ] {
        let image = image(directory.path(), &pages, options);
        assert_eq!(found(&library(&image), &pages), pages.len(), "{options:?}");
    }
}

/// A file as a block device; gone when dropped.
struct Device(String);

impl Device {
    fn of(file: &Path) -> Self {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.expect("losetup is there (package mount)");
        assert!(made.status.success(), "this test makes a block device, which takes root");
        Self(String::from_utf8(made.stdout).expect("a path").trim_end().to_owned())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Nothing more can be done about it here.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn an_image_on_a_block_device_is_found_and_found_again_when_it_has_changed() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut pages = pages();
    // More than what an image of no size at all may claim to hold.
    let random = &mut Xorshift(7);
    pages.extend((0..6000).map(|_| {
        let words: Vec<u8> = (0..64).flat_map(|_| random.draw().to_le_bytes()).collect();
        *words.repeat(8).first_chunk().expect("a page")
    }));
    let raw = directory.path().join("device");
    std::fs::write(&raw, pages.concat()).expect("the scratch directory is writable");
    let device = Device::of(&raw);
    let sources = [SourceSpec::Image(PathBuf::from(&device.0))];
    let scanned = scan(&sources, &key(), 1).expect("it is there");
    assert_eq!(found(&scanned.library, &pages), pages.len());
    let image = image(directory.path(), &pages, &["-c"]);
    let content = std::fs::read(image).expect("the image was made");
    std::fs::write(&device.0, content).expect("the device is larger");
    let scanned = rescan(&scanned.library, &sources, &key(), 1).expect("it is there");
    assert_eq!(found(&scanned.library, &pages), pages.len());
}

#[test]
fn an_index_file_names_compressed_clusters_too() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let pages = pages();
    let image = image(directory.path(), &pages, &["-c"]);
    let index = directory.path().join("index");
    std::fs::write(&index, library(&image).encode()).expect("the scratch directory is writable");
    let read = Library::load(&index, key()).expect("what was just written");
    assert_eq!(found(&read, &pages), pages.len());
}

#[test]
fn what_cannot_be_expanded_is_left_out() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let pages = pages();
    let image = image(directory.path(), &pages, &["-c", "-o", "compression_type=zstd"]);
    assert_eq!(found(&library(&image), &pages), 0);
}

#[test]
fn nothing_but_the_image_itself_is_opened() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (secret, pages) = (directory.path().join("secret"), pages());
    std::fs::write(&secret, pages.concat()).expect("the scratch directory is writable");
    let image = directory.path().join("overlay.qcow2");
    let made = Command::new(lab::required("/usr/bin/qemu-img", "qemu-utils"))
        .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
        .args([&secret, &image])
        .status();
    assert!(made.expect("qemu-img starts").success());
    assert_eq!(found(&library(&image), &pages), 0);
}

/// An image all of whose clusters are one, which claims to hold a disk of so many bytes.
fn bomb(directory: &Path, claims: u64) -> PathBuf {
    const CLUSTER: u64 = 2 << 20;
    let image = image(directory, &pages()[..512], &["-c", "-o", "cluster_size=2M"]);
    let mut bytes = std::fs::read(&image).expect("the image was made");
    let number = |bytes: &[u8], at: usize| {
        u64::from_be_bytes(*bytes[at..].first_chunk().expect("within the image"))
    };
    let place = |at: u64| usize::try_from(at & 0x00ff_ffff_ffff_fe00).expect("within the image");
    let (size, tables, table_at) = (24, 36, 40);
    let first = place(number(&bytes, table_at));
    let within = place(number(&bytes, first));
    let (table, cluster) = (bytes[first..first + 8].to_vec(), bytes[within..within + 8].to_vec());
    let clusters = usize::try_from(CLUSTER / 8).expect("small");
    bytes.resize(bytes.len().max(within + 8 * clusters), 0);
    bytes[within..within + 8 * clusters].copy_from_slice(&cluster.repeat(clusters));
    let many = u32::try_from(claims.div_ceil(CLUSTER * CLUSTER / 8)).expect("few");
    bytes[first..first + 8 * many as usize].copy_from_slice(&table.repeat(many as usize));
    bytes[size..size + 8].copy_from_slice(&claims.to_be_bytes());
    bytes[tables..tables + 4].copy_from_slice(&many.to_be_bytes());
    std::fs::write(&image, bytes).expect("the scratch directory is writable");
    image
}

#[test]
fn an_image_that_claims_more_than_it_can_hold_takes_no_more_than_its_size_and_keeps_no_other_out() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let other = directory.path().join("other");
    let page = [9; PAGE_SIZE];
    std::fs::write(&other, page).expect("the scratch directory is writable");
    for claims in [1 << 30, (1 << 44) - (2 << 20)] {
        let bomb = bomb(directory.path(), claims);
        let scanned = scan(&[bomb, other.clone()].map(SourceSpec::Image), &key(), 1);
        let scanned = scanned.expect("the images are there");
        assert!(scanned.bytes < 64 << 20, "{} bytes were read", scanned.bytes);
        assert_eq!(found(&scanned.library, &[page]), 1);
    }
}

#[test]
fn a_damaged_image_does_no_harm() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let pages = pages();
    let whole = image(directory.path(), &pages, &["-c", "-o", "cluster_size=4k"]);
    let whole = std::fs::read(whole).expect("the image was made");
    let damaged = directory.path().join("damaged.qcow2");
    let mut numbers = Xorshift(7);
    let mut random = |below: usize| usize::try_from(numbers.draw() >> 33).expect("31 bits") % below;
    for _ in 0..600 {
        let mut bytes = whole.clone();
        for _ in 0..=random(4) {
            // Half of the time in the header itself.
            let reach = [104, METADATA][random(2)];
            bytes[random(reach)] = [0, 1, 0x7f, 0x80, 0xff, 0x40][random(6)];
        }
        bytes.truncate(if random(4) == 0 { random(whole.len()) } else { whole.len() });
        std::fs::write(&damaged, bytes).expect("the scratch directory is writable");
        let found = std::panic::catch_unwind(|| found(&library(&damaged), &pages));
        assert!(found.is_ok_and(|found| found <= pages.len()));
    }
}
