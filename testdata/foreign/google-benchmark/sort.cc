#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>
static void BM_Sort(benchmark::State& state) {
  std::vector<int> v(state.range(0));
  for (auto _ : state) {
    for (size_t i = 0; i < v.size(); ++i) v[i] = int(i * 7919 % 1009);
    std::sort(v.begin(), v.end());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Sort)->Arg(100)->Arg(1000);
static void BM_Copy(benchmark::State& state) {
  std::string a(4096, 'x');
  for (auto _ : state) {
    std::string b(a);
    benchmark::DoNotOptimize(b);
  }
}
BENCHMARK(BM_Copy)->Unit(benchmark::kMicrosecond);
static void BM_Fails(benchmark::State& state) {
  state.SkipWithError("no such device");
  for (auto _ : state) {
  }
}
BENCHMARK(BM_Fails);
BENCHMARK_MAIN();
