// A program with children: what they close is not closed for it, and what they write it reads.
//
//   forked FOLDER
//
// Each rank keeps a POSIX descriptor of a file, served as long as ranks have it open or cached.
// Prints "forked: 0 differences" when all bytes are as they should be.

#include <fcntl.h>
#include <mpi.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "checks.h"
#include "children.h"

namespace {

using checks::ended_well;
using checks::expect;
using checks::forked;
using checks::g_rank;
using checks::give_up;

constexpr int kCell = 5000;  // ranks share pages
constexpr int kChildsCell = 1;
constexpr int kCells = 2;  // a rank's own, and its child's

MPI_Offset place(int rank, int cell) {
  return (MPI_Offset{rank} * kCells + cell) * static_cast<MPI_Offset>(kCell);
}

bool holds(int fd, int rank, int cell, char value) {
  std::vector<char> bytes(kCell);
  if (pread(fd, bytes.data(), kCell, place(rank, cell)) != kCell) return false;
  return bytes == std::vector<char>(kCell, value);
}

void put(int fd, int cell, char value) {
  const std::vector<char> bytes(kCell, value);
  if (pwrite(fd, bytes.data(), kCell, place(g_rank, cell)) != kCell) give_up("pwrite");
}

// As subprocess libraries do before they execute something.
void close_all() {
  for (int fd = 3; fd < 256; ++fd) close(fd);
}

// Subprocess libraries do this, though POSIX leaves it undefined.
// NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
bool vforked() {
  const pid_t pid = vfork();
  if (pid == 0) {
    close_all();
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  return ended_well(pid);
}
// NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)

bool spawned(char** environment) {
  const char* words[] = {"true", nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, "/bin/true", nullptr, nullptr, const_cast<char**>(words), environment) != 0)
    give_up("posix_spawn");
  return ended_well(pid);
}

MPI_File open_file(const std::string& path) {
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                    &file) != MPI_SUCCESS) {
    give_up("MPI_File_open");
  }
  return file;
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("forked", &argc, &argv, 2);
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string path = std::string(argv[1]) + "/file";
  const std::string others_path = std::string(argv[1]) + "/other";

  MPI_File file = open_file(path);
  const int fd = open(path.c_str(), O_RDWR);
  if (fd < 0) give_up(path.c_str());
  put(fd, 0, 'a');
  put(fd, kChildsCell, 'a');
  MPI_Barrier(MPI_COMM_WORLD);
  // From here on the descriptor alone keeps the file in the cache.
  MPI_File_close(&file);

  MPI_File other = open_file(others_path);
  // Had a child given the file's entry back, the next file would take it.
  const auto write_and_reopen = [&](char value, const char* when) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_close(&other);
    other = open_file(others_path);
    put(fd, 0, value);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int rank = 0; rank < ranks; ++rank) expect(holds(fd, rank, 0, value), when);
    MPI_Offset size = -1;
    MPI_File_get_size(other, &size);
    expect(size == 0, when);
    MPI_Barrier(MPI_COMM_WORLD);
  };
  expect(forked([] {
           close_all();
           return true;
         }),
         "a child that closes all");
  write_and_reopen('b', "after a child");
  expect(spawned(environ), "a spawned program");
  write_and_reopen('c', "after a spawned program");
  if (g_rank == 0) expect(vforked(), "a vfork's child that closes all");
  write_and_reopen('d', "after a vfork's child");

  expect(forked([&] {
           if (!holds(fd, g_rank, 0, 'd')) return false;
           put(fd, kChildsCell, 'e');
           const int copy = dup(fd);
           close(fd);
           return holds(copy, g_rank, kChildsCell, 'e');
         }),
         "a child that uses what it inherits");
  put(fd, 0, 'f');
  MPI_Barrier(MPI_COMM_WORLD);
  for (int rank = 0; rank < ranks; ++rank) {
    expect(holds(fd, rank, 0, 'f'), "what was written after the child");
    expect(holds(fd, rank, kChildsCell, 'e'), "what the children wrote");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  close(fd);
  MPI_File_close(&other);
  checks::end();
  return 0;
}
