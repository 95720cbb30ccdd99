// The C library's functions that nvio does its own I/O by.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace nvio {

// The C library's own functions, past our interposition. The cache does all its I/O by these, so
// that it can never call itself.
struct RealPosix {
  ssize_t (*pread)(int, void*, std::size_t, off_t);
  ssize_t (*pwrite)(int, const void*, std::size_t, off_t);
  ssize_t (*preadv)(int, const iovec*, int, off_t);
  ssize_t (*pwritev)(int, const iovec*, int, off_t);
  int (*ftruncate)(int, off_t);
  int (*fsync)(int);
  int (*fdatasync)(int);
  int (*open)(const char*, int, ...);
  int (*close)(int);
  int (*dup)(int);  // a copy that no program inherits that is executed meanwhile, nor a stream
  int (*unlink)(const char*);
  int (*fstat)(int, struct stat*);
  int (*stat)(const char*, struct stat*);
};

}  // namespace nvio
