//! A kept copy's bytes: header, encrypted slots of one page each, encrypted table of contents.

use pageshare_index::{HashKey, PAGE_SIZE, PageHash, ScopeKey};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::blocks::BlockNames;

/// Bytes before the first slot.
pub(super) const HEADER_BYTES: usize = 128;
/// A page's counter, its ciphertext, its tag.
pub(super) const SLOT_BYTES: usize = COUNTER + PAGE_SIZE + TAG;
/// A VM's name may have so many bytes. Of a longer one the first few tell people which it is, and
/// hexadecimal digits of its hash tell it from all others.
const LABEL: usize = 24;
const DIGITS: usize = 16;

const MAGIC: [u8; 4] = *b"PGSK";
const VERSION: u16 = 1;
const COUNTER: usize = 8;
const TAG: usize = 16;
/// The header's part that the table's tag covers.
const COVERED: usize = HEADER_BYTES - TAG;
/// A line of the table.
pub(super) const ENTRY: usize = 32;
/// First bytes of the nonces of pages, and of the table.
const OF_PAGES: [u8; 4] = [0; 4];
const OF_TABLE: [u8; 4] = [0xff; 4];

/// Why a kept copy is not used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It begins otherwise, or an unfinished one was renamed.
    #[error("it is no kept copy of pageshare, or an unfinished one")]
    Magic,
    /// Another version wrote it.
    #[error("it has version {0}, and this program reads version {VERSION}")]
    Version(u16),
    /// It belongs to another scope.
    #[error("it was kept in another scope")]
    Foreign,
    /// Its time has passed.
    #[error("it expired {0} s ago")]
    Expired(u64),
    /// Its age cannot be told.
    #[error("it was kept {0} s from now: the clock has been set back since")]
    Early(u64),
    /// It was cut or changed.
    #[error("it is damaged")]
    Damaged,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: [u8; 32],
    /// Seconds since 1970.
    pub(super) created: u64,
    pub(super) expires: u64,
    /// Pages in the file.
    pub(super) slots: u64,
    /// Bytes of the encrypted table, without its tag.
    pub(super) table: u64,
    /// The VM's name, or nothing.
    pub(super) label: String,
}

/// One line of the table: what the slot with the line's number holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: PageHash,
    /// Number of the RAM block.
    pub(super) block: u32,
    /// The page's offset in it.
    pub(super) offset: u64,
}

/// Encrypts and decrypts one copy; its key is the copy's own.
pub(super) struct Seal {
    key: LessSafeKey,
    fingerprint: [u8; 16],
}

impl Seal {
    /// The key of the copy with this salt in this scope.
    pub(super) fn new(scope: &ScopeKey, salt: &[u8; 32]) -> Self {
        let material = [scope.0, *salt].concat();
        let key = blake3::derive_key("pageshare 2026 kept copy", &material);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("32 bytes");
        Self { key: LessSafeKey::new(key), fingerprint: scope.hash_key().fingerprint() }
    }

    /// Appends a slot. `counter` must never repeat within a copy, also when a slot is written anew.
    pub(super) fn page(&self, slot: u64, counter: u64, page: &[u8], out: &mut Vec<u8>) {
        out.extend(counter.to_le_bytes());
        let at = out.len();
        out.extend(page);
        let aad = Aad::from(slot.to_le_bytes());
        let tag = self.seal(OF_PAGES, counter, aad, &mut out[at..]);
        out.extend(tag.as_ref());
    }

    /// Decrypts a slot into `page`.
    pub(super) fn open_page(
        &self,
        slot: u64,
        bytes: &mut [u8; SLOT_BYTES],
        page: &mut [u8; PAGE_SIZE],
    ) -> Result<(), Refusal> {
        let (counter, sealed) = bytes.split_at_mut(COUNTER);
        let counter = u64::from_le_bytes((&*counter).try_into().map_err(|_| Refusal::Damaged)?);
        let nonce = nonce(OF_PAGES, counter);
        let opened = self.key.open_in_place(nonce, Aad::from(slot.to_le_bytes()), sealed);
        page.copy_from_slice(opened.map_err(|_| Refusal::Damaged)?);
        Ok(())
    }

    /// The header and the encrypted table; the header goes to the front, the table behind the
    /// slots.
    pub(super) fn finish(
        &self,
        mut header: Header,
        blocks: &BlockNames,
        entries: &[Entry],
    ) -> ([u8; HEADER_BYTES], Vec<u8>) {
        let mut table = encode_table(blocks, entries);
        header.slots = entries.len() as u64;
        header.table = table.len() as u64;
        let mut head = [0; HEADER_BYTES];
        head[..COVERED].copy_from_slice(&self.encode_header(&header));
        let aad = Aad::from(&head[..COVERED]);
        let tag = self.seal(OF_TABLE, 0, aad, &mut table);
        head[COVERED..].copy_from_slice(tag.as_ref());
        (head, table)
    }

    /// Decrypts the table that belongs to the header, which it proves as well.
    pub(super) fn open_table(
        &self,
        head: &[u8; HEADER_BYTES],
        mut table: Vec<u8>,
    ) -> Result<(BlockNames, Vec<Entry>), Refusal> {
        let slots = Header::decode(head)?.slots;
        table.extend(&head[COVERED..]);
        let aad = Aad::from(&head[..COVERED]);
        let opened = self.key.open_in_place(nonce(OF_TABLE, 0), aad, &mut table);
        let (blocks, entries) = decode_table(opened.map_err(|_| Refusal::Damaged)?)?;
        if entries.len() as u64 == slots { Ok((blocks, entries)) } else { Err(Refusal::Damaged) }
    }

    fn encode_header(&self, header: &Header) -> [u8; COVERED] {
        let mut out = [0; COVERED];
        out[..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..24].copy_from_slice(&self.fingerprint);
        out[24..56].copy_from_slice(&header.salt);
        let numbers = [header.created, header.expires, header.slots, header.table];
        for (field, number) in out[56..88].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let label = label(&header.label);
        out[88..88 + label.len()].copy_from_slice(label.as_bytes());
        out
    }

    fn seal<A: AsRef<[u8]>>(&self, kind: [u8; 4], count: u64, aad: Aad<A>, data: &mut [u8]) -> Tag {
        let sealed = self.key.seal_in_place_separate_tag(nonce(kind, count), aad, data);
        sealed.unwrap_or_else(|_| unreachable!("AES-GCM seals up to 64 GiB at once"))
    }
}

fn nonce(kind: [u8; 4], counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&kind);
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// How a copy names the VM with this name.
pub(super) fn label(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    let mut end = LABEL - DIGITS;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let digits = blake3::hash(name.as_bytes()).to_hex();
    format!("{}{}", &name[..end], &digits[..DIGITS])
}

impl Header {
    /// Reads what can be read without the key; the table proves it.
    pub(super) fn decode(head: &[u8; HEADER_BYTES]) -> Result<Self, Refusal> {
        if !Self::is_one(head) {
            return Err(Refusal::Magic);
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(Refusal::Version(version));
        }
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let mut salt = [0; 32];
        salt.copy_from_slice(&head[24..56]);
        let label = head[88..88 + LABEL].split(|byte| *byte == 0).next().unwrap_or_default();
        let label = String::from_utf8_lossy(label).into_owned();
        Ok(Self {
            salt,
            created: number(56),
            expires: number(64),
            slots: number(72),
            table: number(80),
            label,
        })
    }

    /// Whether a finished copy begins so, of whatever version and scope.
    pub(super) fn is_one(head: &[u8; HEADER_BYTES]) -> bool {
        head[..4] == MAGIC
    }

    /// Whether the header names this scope's key.
    pub(super) fn is_of(head: &[u8; HEADER_BYTES], key: &HashKey) -> bool {
        head[8..24] == key.fingerprint()
    }
}

fn encode_table(blocks: &BlockNames, entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * ENTRY);
    out.extend(u32::try_from(blocks.iter().len()).unwrap_or(u32::MAX).to_le_bytes());
    for name in blocks.iter() {
        // QEMU's names have one byte for their length.
        out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        out.extend(name);
    }
    for entry in entries {
        out.extend(entry.hash.0);
        out.extend(entry.offset.to_le_bytes());
        out.extend(entry.block.to_le_bytes());
        out.extend([0; 4]);
    }
    out
}

fn decode_table(bytes: &[u8]) -> Result<(BlockNames, Vec<Entry>), Refusal> {
    let (count, mut rest) = bytes.split_first_chunk().ok_or(Refusal::Damaged)?;
    let mut blocks = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, more) = rest.split_first().ok_or(Refusal::Damaged)?;
        let (name, more) = more.split_at_checked((*length).into()).ok_or(Refusal::Damaged)?;
        blocks.push(name.to_vec());
        rest = more;
    }
    let (lines, rest) = rest.as_chunks::<ENTRY>();
    if !rest.is_empty() {
        return Err(Refusal::Damaged);
    }
    let entry = |line: &[u8; ENTRY]| {
        let (hash, rest) = line.split_first_chunk::<16>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (block, _) = rest.split_first_chunk::<4>()?;
        let (block, offset) = (u32::from_le_bytes(*block), u64::from_le_bytes(*offset));
        Some(Entry { hash: PageHash(*hash), block, offset })
    };
    let entries: Option<Vec<Entry>> = lines.iter().map(entry).collect();
    Ok((blocks.into_iter().collect(), entries.ok_or(Refusal::Damaged)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            salt: [3; 32],
            created: 1_700_000_000,
            expires: 1_700_086_400,
            slots: 2,
            table: 0,
            label: "web1".into(),
        }
    }

    /// A copy of two pages, as the golden file holds it.
    fn copy() -> Vec<u8> {
        let scope = ScopeKey([5; 32]);
        let seal = Seal::new(&scope, &[3; 32]);
        let key = scope.hash_key();
        let pages = [[1; PAGE_SIZE], [2; PAGE_SIZE]];
        let mut slots = Vec::new();
        for (slot, page) in (0..).zip(&pages) {
            seal.page(slot, 7 + slot, page, &mut slots);
        }
        let entries: Vec<Entry> = (0_u64..)
            .zip(&pages)
            .map(|(at, page)| Entry { hash: key.hash(page), block: 0, offset: at * 4096 })
            .collect();
        let (head, table) =
            seal.finish(header(), &BlockNames::from_iter([b"pc.ram".to_vec()]), &entries);
        [&head[..], &slots, &table].concat()
    }

    /// `PAGESHARE_GOLDEN=write` writes the file anew, for a new version.
    #[test]
    fn the_golden_copy_is_what_is_written_today() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/pageshare/kept-copy.bin");
        if std::env::var("PAGESHARE_GOLDEN").is_ok_and(|wish| wish == "write") {
            std::fs::write(path, copy()).unwrap();
        }
        let golden = std::fs::read(path).unwrap();
        assert!(copy() == golden, "the format has changed: raise its version");
    }

    #[test]
    fn every_changed_byte_of_a_copy_is_noticed() {
        let sound = copy();
        let scope = ScopeKey([5; 32]);
        let read = |bytes: &[u8]| -> Result<(), Refusal> {
            let head: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Refusal::Damaged)?;
            let seal = Seal::new(&scope, &Header::decode(head)?.salt);
            let table = bytes[HEADER_BYTES + 2 * SLOT_BYTES..].to_vec();
            let (_, entries) = seal.open_table(head, table)?;
            for (slot, entry) in (0..).zip(entries) {
                let at = HEADER_BYTES + usize::try_from(slot).unwrap() * SLOT_BYTES;
                let mut sealed = *bytes[at..].first_chunk().unwrap();
                let mut page = [0; PAGE_SIZE];
                seal.open_page(slot, &mut sealed, &mut page)?;
                assert_eq!(scope.hash_key().hash(&page), entry.hash);
            }
            Ok(())
        };
        assert_eq!(read(&sound), Ok(()));
        // Every byte of header and table, and some of the pages'.
        let places = (0..HEADER_BYTES + 16)
            .chain((HEADER_BYTES..sound.len()).step_by(611))
            .chain(HEADER_BYTES + 2 * SLOT_BYTES..sound.len());
        for at in places {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn long_names_that_begin_alike_are_told_apart() {
        assert_eq!(label("web1"), "web1");
        let longest = "production-eu-west-1-web";
        assert_eq!(label(longest), longest);
        let [one, other] = ["01", "02"].map(|vm| label(&format!("{longest}-{vm}")));
        assert!(one != other && one.starts_with("producti") && one.len() == LABEL, "{one}");
        assert_eq!(label(&one), one);
        assert_eq!(label(&format!("a{}", "é".repeat(20))).len(), 7 + DIGITS);
    }
}
