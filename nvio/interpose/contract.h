// What the neutral loader (libnvio.so) and the library for one MPI (libnvio-<abi>.so) tell each
// other. The loader is preloaded into every process and stays inert; the other library is
// opened by it in processes that hold an MPI, at their first MPI call, and never before.
//
// Everything here is plain C: the loader links no C++ run-time library.
#pragma once

#include <aio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "../system/real_posix.h"

namespace nvio {

constexpr std::uint32_t kContractVersion = 7;
constexpr int kMaxDescriptors = 65536;

// What the loader's table says of a descriptor.
constexpr std::uint8_t kServed = 1;  // by the hooks
constexpr std::uint8_t kStream = 2;  // the C library's streams use it, by calls that pass no hook

// What the cache serves on descriptors it tracks. All are called without any lock held, set errno
// like the call they stand for, and are safe from several threads.
struct PosixHooks {
  ssize_t (*read_at)(int fd, void* buffer, std::size_t length, off_t offset);
  ssize_t (*write_at)(int fd, const void* buffer, std::size_t length, off_t offset);
  off_t (*size)(int fd);
  int (*truncate)(int fd, off_t length);
  int (*sync)(int fd);
  // A descriptor was opened: the cache decides whether it tracks it. Returns 0, or -1 with errno
  // when it could not decide, and the descriptor must be closed.
  int (*opened)(int fd);
  // Returns 0, or -1 with errno when what the cache held could not be written back.
  int (*closing)(int fd);
  void (*duplicated)(int from, int to);
  // The program is about to change how transfers through this descriptor are done, or to lock its
  // opening: the cache's own must have no part in it. Returns 0, or -1 with errno.
  int (*stand_alone)(int fd);
  // Somebody is about to lock a range of the file, to read it and write it back as a whole.
  void (*expect_locks)(int fd);
  // A call that is not served is about to use the file: write back, forget, and stay out of it.
  // Returns 0, or -1 with errno when that cannot be: what the file holds is not what was written.
  int (*step_aside)(int fd);
  int (*step_aside_path)(const char* path);
  // The size of a file as the job sees it; leaves `status` alone when the file is not tracked.
  // Returns 0, or -1 with errno when it could not be found out.
  int (*correct_size)(struct stat* status);
  // Vectors as one call; null: each of them is a call of its own to read_at or write_at.
  ssize_t (*read_vector)(int fd, const iovec* vectors, int count, off_t offset);
  ssize_t (*write_vector)(int fd, const iovec* vectors, int count, off_t offset);
  // A number that tells a served file from others, whatever the descriptor; -1 when calls on it go
  // to the C library for good.
  int (*file_number)(int fd);
  // Whether asynchronous calls are served, at once; else the cache steps aside.
  bool serves_asynchronous;

  // Whether these are of a process that calls no MPI-IO.
  bool serves_nothing() const { return read_at == nullptr; }
};

// One for each level: the functions of the table, indexed as in entries.inc; null when missing.
using EntryTable = void* const*;

struct FromLoader {
  std::uint32_t version;
  const RealPosix* real;
  std::uint8_t* tracked;  // kMaxDescriptors marks
  // One bit for each inode modulo 64: the program may have mapped a file that has it.
  const std::uint64_t* mapped;
  // How often the calling thread is inside nvio; while it is, its calls go to the C library at
  // once.
  int* (*inside)();
  // The function of this name behind us: the next in symbol order, else the MPI's own.
  void* (*next_symbol)(const char* name);
};

struct FromLibrary {
  std::uint32_t version;
  EntryTable mpi;
  EntryTable pmpi;
  const PosixHooks* hooks;
};

// What a libnvio-<abi>.so exports. For a process that calls MPI-IO: returns false when it cannot
// serve (it has said why).
using AttachFunction = bool (*)(const FromLoader*, FromLibrary*);
constexpr const char* kAttachSymbol = "nvio_attach";
// For any other, which may still use a file that a job caches: only opened, step_aside_path and
// correct_size are there. Null when it is of another version.
using WatchFunction = const PosixHooks* (*)(const FromLoader*);
constexpr const char* kWatchSymbol = "nvio_watch";
// What the command `nvio` has, and no other program.
constexpr const char* kItselfSymbol = "nvio_itself";

}  // namespace nvio
