use criterion::{black_box, criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
fn sorts(c: &mut Criterion) {
    c.bench_function("sum", |b| b.iter(|| (0..black_box(1000u64)).sum::<u64>()));
    let mut group = c.benchmark_group("sort");
    group.sample_size(20);
    for n in [100usize, 1000] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_with_input(BenchmarkId::new("unstable", n), &n, |b, &n| {
            b.iter(|| { let mut v: Vec<u64> = (0..n as u64).rev().map(|x| x * 7919 % 1009).collect(); v.sort_unstable(); v })
        });
    }
    group.finish();
}
criterion_group! { name = benches; config = Criterion::default().warm_up_time(std::time::Duration::from_millis(200)).measurement_time(std::time::Duration::from_millis(500)).sample_size(20).without_plots(); targets = sorts }
criterion_main!(benches);
