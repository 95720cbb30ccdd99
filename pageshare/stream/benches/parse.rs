//! Speed of the parser in memory, in stream bytes (claim D8).

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pageshare_stream::{PAGE_SIZE, Parser, RamWord, Step};

fn pages(count: u64) -> Vec<u8> {
    let mut channel = b"QEVM\0\0\0\x03\x01\0\0\0\x02\x03ram\0\0\0\0\0\0\0\x04".to_vec();
    for page in 0..count {
        let word = RamWord(RamWord::PAGE | RamWord::CONTINUE).plus_pages(page);
        channel.extend(word.to_bytes());
        channel.extend([1; PAGE_SIZE]);
    }
    channel
}

fn parse(criterion: &mut Criterion) {
    let channel = pages(16384);
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Bytes(channel.len() as u64));
    group.bench_function("pages", |bencher| {
        bencher.iter(|| {
            let mut parser = Parser::new();
            let mut at = 0;
            while let Step::Token { length, .. } = parser.step(black_box(&channel[at..])) {
                at += length;
            }
            at
        });
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
