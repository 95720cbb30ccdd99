#include "trace_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "../system/crc32c.h"
#include "../system/real.h"

namespace nvio {
namespace {

constexpr std::size_t kBufferedCalls = 1600;  // 64 KB a process

}  // namespace

TraceWriter::TraceWriter(const std::string& path, std::uint64_t start, std::uint32_t process,
                         const std::string& host)
    : path_(path), fd_(real().open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  if (fd_ < 0) give_up();
  calls_.reserve(kBufferedCalls);
  TraceHeader header{};
  std::memcpy(header.magic, kTraceMagic, sizeof header.magic);
  header.version = kTraceVersion;
  header.process = process;
  header.start = start;
  std::memcpy(header.host, host.data(), std::min(host.size(), sizeof header.host - 1));
  header.checksum = crc32c(&header, offsetof(TraceHeader, checksum));
  append(&header, sizeof header);
}

TraceWriter::~TraceWriter() {
  flush();
  close();
}

void TraceWriter::close() {
  if (fd_ >= 0) real().close(fd_);
  fd_ = -1;
}

void TraceWriter::give_up() {
  std::fprintf(stderr, "nvio: cannot write the trace %s: %s; the program goes on without\n",
               path_.c_str(), std::strerror(errno));
  close();
}

void TraceWriter::add_file(TraceFile file, const std::string& path, const std::string& source) {
  flush();
  constexpr std::size_t kMostName = 4096;
  file.path_length = static_cast<std::uint16_t>(std::min(path.size(), kMostName));
  file.source_length = static_cast<std::uint16_t>(std::min(source.size(), kMostName));
  std::string payload(reinterpret_cast<const char*>(&file), sizeof file);
  payload.append(path, 0, file.path_length).append(source, 0, file.source_length);
  payload.resize((payload.size() + 7) / 8 * 8);
  write_block(TraceBlockType::file, payload.data(), payload.size());
}

void TraceWriter::add_view(const View& view, std::uint32_t same, bool has_runs) {
  flush();
  const std::span<const FileRun> runs = has_runs ? view.runs() : std::span<const FileRun>();
  const TraceView head{view.displacement(), view.extent(), same,
                       static_cast<std::uint32_t>(runs.size())};
  std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
  payload.append(reinterpret_cast<const char*>(runs.data()), runs.size_bytes());
  write_block(TraceBlockType::view, payload.data(), payload.size());
}

void TraceWriter::add(const TraceCall& call) {
  if (fd_ < 0) return;
  calls_.push_back(call);
  if (calls_.size() == kBufferedCalls) flush();
}

void TraceWriter::flush() {
  if (!calls_.empty()) {
    write_block(TraceBlockType::calls, calls_.data(), calls_.size() * sizeof(TraceCall));
  }
  calls_.clear();
}

void TraceWriter::write_block(TraceBlockType type, const void* payload, std::size_t length) {
  if (fd_ < 0) return;
  TraceBlock block{kTraceBlockMagic, type, static_cast<std::uint32_t>(length), sequence_++, 0, 0};
  block.payload_checksum = crc32c(payload, length);
  block.checksum = crc32c(&block, offsetof(TraceBlock, checksum));
  append(&block, sizeof block);
  append(payload, length);
}

void TraceWriter::append(const void* data, std::size_t length) {
  if (fd_ < 0) return;
  if (write_own(fd_, data, length, position_) < 0) give_up();
  position_ += static_cast<off_t>(length);
}

}  // namespace nvio
