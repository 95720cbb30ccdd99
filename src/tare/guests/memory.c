/* Memory of known content, inside a guest of the migration workload.
 *
 *   tare-memory content SEED BYTES        write bytes that do not compress
 *   tare-memory fill MIB ALIKE SEED       hold MIB of memory, of which ALIKE per mille are the same
 *                                         in every guest and the rest depend on SEED
 *   tare-memory dirty BYTES SEED          rewrite 64 MiB, BYTES a second, on a fixed schedule
 *   tare-memory spin                      compute without end
 *
 * Content is the sequence of xorshift64* (Vigna 2016), seeded by place, so that no two pages are
 * alike unless they are meant to be.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, DIRTIED = 64 << 20, TICKS_A_SECOND = 50 };

static uint64_t scramble(uint64_t x) { /* SplitMix64's finaliser: near seeds, far states */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (x ^ (x >> 31)) | 1;
}

static void fill_page(void *page, uint64_t seed, uint64_t place) {
  uint64_t state = scramble(scramble(seed) + place);
  uint64_t *words = page;
  for (size_t i = 0; i < PAGE / sizeof *words; i++) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    words[i] = state * 0x2545f4914f6cdd1du;
  }
}

static char *hold(size_t bytes) {
  char *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    perror("tare-memory: mmap");
    exit(1);
  }
  return memory;
}

static int content(uint64_t seed, size_t bytes) {
  char page[PAGE];
  for (uint64_t place = 0; bytes > 0; place++) {
    size_t n = bytes < PAGE ? bytes : PAGE;
    fill_page(page, ~seed, place);
    if (fwrite(page, 1, n, stdout) != n) return 1;
    bytes -= n;
  }
  return fflush(stdout) != 0;
}

static int fill(size_t mib, uint64_t alike_per_mille, uint64_t seed) {
  size_t pages = (mib << 20) / PAGE;
  char *memory = hold(mib << 20);
  for (size_t i = 0; i < pages; i++) {
    /* Spread, as shared pages are among others in a real guest: 7 has no factor with 1000. */
    int alike = i * 7 % 1000 < alike_per_mille;
    fill_page(memory + i * PAGE, alike ? 1 : scramble(seed), i);
  }
  FILE *filled = fopen("/run/tare-filled", "w");
  if (filled == NULL || fclose(filled) != 0) return 1;
  for (;;) pause();
}

_Noreturn static void dirty(uint64_t bytes_a_second, uint64_t seed) {
  char *memory = hold(DIRTIED);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  uint64_t owed = 0, written = 0;
  for (;;) {
    for (owed += bytes_a_second / TICKS_A_SECOND; owed >= PAGE; owed -= PAGE, written++)
      fill_page(memory + written * PAGE % DIRTIED, scramble(seed), written);
    next.tv_nsec += 1000000000 / TICKS_A_SECOND;
    next.tv_sec += next.tv_nsec / 1000000000;
    next.tv_nsec %= 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
  }
}

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  uint64_t numbers[3] = {0};
  for (int i = 0; i < 3 && i + 2 < argc; i++) numbers[i] = strtoull(argv[i + 2], NULL, 10);
  if (strcmp(verb, "content") == 0) return content(numbers[0], numbers[1]);
  if (strcmp(verb, "fill") == 0) return fill(numbers[0], numbers[1], numbers[2]);
  if (strcmp(verb, "dirty") == 0) dirty(numbers[0], numbers[1]);
  if (strcmp(verb, "spin") == 0)
    for (volatile uint64_t turns = 0;; turns++) continue;
  fprintf(stderr, "tare-memory: content, fill, dirty or spin\n");
  return 2;
}
