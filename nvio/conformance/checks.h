// What a program that checks itself shares with others of its kind: it counts what is not as it
// should be, names it, and says at the end how much there was.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>

namespace checks {

inline const char* g_program = "";
inline int g_rank = 0;
inline int g_wrong = 0;

[[noreturn]] inline void give_up(const char* what) {
  std::perror(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

inline void begin(const char* program, int* argc, char*** argv, int words) {
  MPI_Init(argc, argv);
  g_program = program;
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  if (*argc != words) MPI_Abort(MPI_COMM_WORLD, 2);
}

inline void expect(bool right, const char* what) {
  if (right) return;
  std::printf("%s: rank %d: %s\n", g_program, g_rank, what);
  ++g_wrong;
}

// Prints "PROGRAM: n differences", of all ranks.
inline void end() {
  int all = 0;
  MPI_Reduce(&g_wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (g_rank == 0) std::printf("%s: %d differences\n", g_program, all);
  MPI_Finalize();
}

}  // namespace checks
