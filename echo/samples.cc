#include "samples.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace tare::echo {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the file is little-endian and written as it lies in memory");

struct FileHeader {
  std::array<char, 8> magic = {'T', 'A', 'R', 'E', 'E', 'C', 'H', 'O'};
  uint32_t version = 1;
  uint32_t header_bytes = 64;
  uint32_t record_bytes = sizeof(Sample);
  uint32_t clock = 1;  // CLOCK_MONOTONIC
  uint64_t records = 0;
  uint32_t payload_bytes = 0;
  uint32_t clients = 0;
  uint32_t mode = 0;
  uint32_t reserved0 = 0;
  std::array<uint64_t, 2> reserved = {};
};
static_assert(sizeof(FileHeader) == 64);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw std::runtime_error("cannot write the samples to " + path.string() + ": " +
                           std::strerror(error));
}

}  // namespace

void write_samples(const std::filesystem::path& path, const SampleFile& samples) {
  FileHeader header;
  header.payload_bytes = samples.payload_bytes;
  header.clients = static_cast<uint32_t>(samples.clients.size());
  header.mode = static_cast<uint32_t>(samples.mode);
  for (const auto& client : samples.clients) header.records += client.size();

  // A device or a pipe is written to; renaming a file over it would replace it (/dev/null, as
  // root).
  std::error_code unknown;
  const auto type = std::filesystem::status(path, unknown).type();
  const bool whole_or_nothing =
      type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::regular;
  std::filesystem::path partial = path;
  if (whole_or_nothing) partial += ".part";
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(partial.c_str(), "wb"));
  if (!file) fail(path, errno);
  bool written = std::fwrite(&header, sizeof header, 1, file.get()) == 1;
  for (const auto& client : samples.clients) {
    written = written && std::fwrite(client.data(), sizeof(Sample), client.size(), file.get()) ==
                             client.size();
  }
  // A full disk shows only when the last buffer goes out.
  written = written && std::fflush(file.get()) == 0;
  const int error = errno;
  file.reset();
  if (!written && whole_or_nothing) std::filesystem::remove(partial);
  if (!written) fail(path, error);
  if (whole_or_nothing) std::filesystem::rename(partial, path);
}

}  // namespace tare::echo
