//! Speed of hashing pages, of building a table, and of finding in it, on one core (claim D8).

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pageshare_index::{PAGE_SIZE, PageHash, ScopeKey, TableBuilder};

/// Pages: 64 MiB.
const PAGES: u32 = 1 << 14;

fn index(criterion: &mut Criterion) {
    let key = ScopeKey([7; 32]).hash_key();
    let memory: Vec<u8> = (0..PAGES as usize * PAGE_SIZE / 4)
        .flat_map(|word| u32::try_from(word).unwrap_or(0).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let hashes: Vec<PageHash> = memory.chunks(PAGE_SIZE).map(|page| key.hash(page)).collect();

    let mut group = criterion.benchmark_group("index");
    group.throughput(Throughput::Bytes(memory.len() as u64));
    group.sample_size(10);
    group.bench_function("hash", |bencher| {
        bencher.iter(|| memory.chunks(PAGE_SIZE).map(|page| key.hash(page).prefix()).max());
    });
    let pages: Vec<&[u8; PAGE_SIZE]> = memory.as_chunks().0.iter().collect();
    group.bench_function("hash_pages", |bencher| bencher.iter(|| key.hash_pages(&pages)));
    let build = || {
        let mut builder = TableBuilder::default();
        for (page, hash) in (0..).zip(&hashes) {
            builder.insert(*hash, page);
        }
        builder.build()
    };
    group.bench_function("build", |bencher| bencher.iter(build));
    let table = build();
    group.bench_function("find", |bencher| {
        bencher.iter(|| hashes.iter().filter_map(|hash| table.find(black_box(*hash)).next()).max());
    });
    group.finish();
}

criterion_group!(benches, index);
criterion_main!(benches);
