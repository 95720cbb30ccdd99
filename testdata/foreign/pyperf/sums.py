"""Two benchmarks."""

import pyperf

r = pyperf.Runner()
r.timeit("sum", stmt="sum(range(1000))")
r.timeit("sort", stmt="sorted(range(100, 0, -1))")
