// A program that ends with a descriptor open, as it may: what it wrote there is in the file all the
// same, also when the file was cached and only the descriptor kept it so.
//
//   left FOLDER [HINT=VALUE]...
//
// Prints "left: 0 differences" when other programs see all that rank 0 wrote.

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>

#include "checks.h"

namespace {

using checks::expect;
using checks::give_up;

constexpr int kLength = 100000;
constexpr long kFar = 3 << 20;  // another node's, where there are two

void put(int fd, long at, const std::string& bytes) {
  const auto length = static_cast<ssize_t>(bytes.size());
  if (pwrite(fd, bytes.data(), bytes.size(), at) != length) give_up("pwrite");
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("left", &argc, &argv, std::max(argc, 2));
  const std::string path = std::string(argv[1]) + "/file";
  const std::string first(kLength, 'a');
  MPI_Info hints;
  MPI_Info_create(&hints);
  for (const std::string hint : std::span(argv, static_cast<std::size_t>(argc)).subspan(2)) {
    const std::size_t equals = hint.find('=');
    MPI_Info_set(hints, hint.substr(0, equals).c_str(), hint.substr(equals + 1).c_str());
  }
  MPI_File file;
  if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, hints, &file) !=
      MPI_SUCCESS) {
    give_up(path.c_str());
  }
  MPI_Info_free(&hints);
  const bool acts = checks::g_rank == 0;
  const int fd = acts ? open(path.c_str(), O_RDWR) : -1;
  if (acts) {
    if (fd < 0) give_up(path.c_str());
    MPI_File_write_at(file, 0, first.data(), kLength, MPI_BYTE, MPI_STATUS_IGNORE);
  }
  MPI_File_close(&file);
  const std::string here(5000, 'h');
  const std::string far(5000, 'f');
  const std::string late(5000, 'l');
  if (acts) {
    put(fd, 20000, here);
    put(fd, kFar, far);
  }
  MPI_Finalize();
  if (!acts) return 0;
  expect(checks::seen_from_outside(path, 20000, 5000) == here, "what was written after the close");
  expect(checks::seen_from_outside(path, kFar, 5000) == far, "and far from it");
  put(fd, 20000, late);
  expect(checks::seen_from_outside(path, 20000, 5000) == late, "what was written after the end");
  expect(checks::seen_from_outside(path, 0, 20000) == first.substr(0, 20000), "what was there");
  std::printf("left: %d differences\n", checks::g_wrong);
  return 0;
}
