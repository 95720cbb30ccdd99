// What a program that checks itself shares with others of its kind: it counts what is not as it
// should be, names it, and says at the end how much there was.
#pragma once

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

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
  int is_initialised = 0;
  MPI_Initialized(&is_initialised);
  if (is_initialised == 0) MPI_Init(argc, argv);
  g_program = program;
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  if (*argc != words) MPI_Abort(MPI_COMM_WORLD, 2);
}

#if MPI_VERSION >= 4
// A session, and a communicator of it with this process alone; both are the caller's to free.
inline bool begin_session(const char* name, MPI_Session& session, MPI_Comm& comm) {
  MPI_Group group;
  return MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS &&
         MPI_Group_from_session_pset(session, "mpi://SELF", &group) == MPI_SUCCESS &&
         MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) ==
             MPI_SUCCESS &&
         MPI_Group_free(&group) == MPI_SUCCESS;
}
#endif

inline void expect(bool right, const char* what) {
  if (right) return;
  std::printf("%s: rank %d: %s\n", g_program, g_rank, what);
  ++g_wrong;
}

// What a program sees in the file that nvio does not help.
inline std::string seen_from_outside(const std::string& path, long from, int length) {
  const std::string command = "LD_PRELOAD= tail -c +" + std::to_string(from + 1) + " '" + path +
                              "' | head -c " + std::to_string(length);
  FILE* stream = popen(command.c_str(), "r");
  if (stream == nullptr) give_up("popen");
  std::string bytes(static_cast<std::size_t>(length), '\0');
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), stream));
  pclose(stream);
  return bytes;
}

// Prints "PROGRAM: n differences", of all ranks.
inline void end() {
  int all = 0;
  MPI_Reduce(&g_wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (g_rank == 0) std::printf("%s: %d differences\n", g_program, all);
  MPI_Finalize();
}

}  // namespace checks
