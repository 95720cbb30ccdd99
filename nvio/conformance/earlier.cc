// What a program had of a file before it opened it by MPI-IO, and a cache could not see: streams
// and mappings, whose reads and writes are no calls that it could serve.
//
//   earlier FOLDER
//
// Rank 0 acts. Prints "earlier: 0 differences" when all is as the kernel alone would have it.

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "checks.h"
#include "opened.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;
using checks::Opened;
using std::string;

constexpr std::size_t kMapped = 8192;

string read_from(FILE* stream, std::size_t length) {
  string bytes(length, '\0');
  std::rewind(stream);
  bytes.resize(std::fread(bytes.data(), 1, length, stream));
  return bytes;
}

// Unbuffered, so that it asks the kernel each time.
FILE* unbuffered(FILE* stream) {
  if (stream == nullptr || std::setvbuf(stream, nullptr, _IONBF, 0) != 0) give_up("stream");
  return stream;
}

int make(const string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0) give_up(path.c_str());
  return fd;
}

void use(FILE* stream, const string& path) {
  Opened file(path);
  if (g_rank != 0) return;
  expect(read_from(stream, 3) == "aaa", "what was written before a stream from before read it");
  file.write(0, "mpi");
  expect(read_from(stream, 5) == "mpiaa", "what a stream from before reads");
  std::rewind(stream);
  std::fputs("stdio", stream);
  expect(file.read(0, 6) == "stdioa", "what a stream from before wrote");
  std::fclose(stream);
}

void streams(const string& path) {
  use(g_rank == 0 ? unbuffered(std::fopen(path.c_str(), "w+")) : nullptr, path);
}

void streams_of_descriptors(const string& path) {
  use(g_rank == 0 ? unbuffered(fdopen(make(path), "r+")) : nullptr, path);
}

void mappings(const string& path) {
  char* memory = nullptr;
  if (g_rank == 0) {
    const int fd = make(path);
    void* mapped = ftruncate(fd, kMapped) == 0
                       ? mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    if (mapped == MAP_FAILED) give_up("mmap");
    memory = static_cast<char*>(mapped);
    close(fd);
  }
  Opened file(path);
  if (g_rank != 0) return;
  expect(std::memcmp(memory, "aaa", 3) == 0, "what was written before a mapping was looked at");
  file.write(0, "mpi");
  expect(std::memcmp(memory, "mpia", 4) == 0, "what stands in a mapping from before");
  std::memcpy(memory + 10, "map", 3);
  expect(file.read(9, 5) == "amapa", "what was stored through a mapping from before");
  munmap(memory, kMapped);
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("earlier", &argc, &argv, 2);
  const string folder = argv[1];
  // Each before the program's first call of MPI-IO, and after it.
  streams(folder + "/stream");
  streams(folder + "/another");
  streams_of_descriptors(folder + "/descriptor");
  mappings(folder + "/mapping");
  checks::end();
  return 0;
}
