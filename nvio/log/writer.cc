#include "writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "../system/crc32c.h"

namespace nvio {
namespace {

constexpr std::size_t kBatch = 1 << 20;          // bytes handed to the medium at once
constexpr std::uint64_t kReserveStep = 4 << 20;  // the log grows by this much at least

}  // namespace

Superblock LogWriter::superblock(LogState state, const FileIdentity& file) const {
  Superblock block{};
  std::memcpy(block.magic, kLogMagic, sizeof kLogMagic);
  block.version = kLogVersion;
  block.state = state;
  block.epoch = position_.epoch;
  block.device = file.device;
  block.inode = file.inode;
  block.flags = file.deleted ? kFileDeleted : 0;
  block.path_length = static_cast<std::uint32_t>(std::min(file.path.size(), sizeof block.path));
  std::memcpy(block.path, file.path.data(), block.path_length);
  block.mark = file.mark;
  block.checksum = crc32c(&block, offsetof(Superblock, checksum));
  return block;
}

int LogWriter::place(const Superblock& block, std::uint64_t copy) {
  if (const int error = medium_.write(copy * kSuperblockSize, &block, sizeof block)) return error;
  return medium_.persist();
}

int LogWriter::start(const FileIdentity& file) {
  if (file.path.size() > sizeof Superblock{}.path) return ENAMETOOLONG;
  if (position_.reserved < kFirstRecord) {
    if (const int error = medium_.reserve(kFirstRecord)) return error;
    position_.reserved = kFirstRecord;
  }
  if (position_.epoch == 0) {
    if (const int error = medium_.persist_name()) return error;
  }
  pending_.clear();
  ++position_.epoch;
  position_.tail = kFirstRecord;
  position_.sequence = 0;
  position_.chain = 0;
  return place(superblock(LogState::live, file), position_.epoch % 2);
}

int LogWriter::mark(LogState state, const FileIdentity& file) {
  // The other copy holds an older epoch, which would void the records: it is brought up first, so
  // that at every moment one copy is whole and of this epoch.
  const Superblock block = superblock(state, file);
  if (const int error = place(block, (position_.epoch + 1) % 2)) return error;
  return place(block, position_.epoch % 2);
}

int LogWriter::append(RecordType type, std::uint64_t offset, const void* data, std::size_t length) {
  if (error_ != 0) return error_;
  Record record{};
  record.magic = kRecordMagic;
  record.type = type;
  record.epoch = position_.epoch;
  record.sequence = position_.sequence++;
  record.offset = offset;
  record.length = length;
  record.payload_checksum = crc32c(data, length);
  record.checksum = crc32c(&record, offsetof(Record, checksum), position_.chain);
  position_.chain = record.checksum;
  if (pending_.empty()) pending_at_ = position_.tail;
  const auto* header = reinterpret_cast<const char*>(&record);
  pending_.insert(pending_.end(), header, header + sizeof record);
  const auto* payload = static_cast<const char*>(data);
  pending_.insert(pending_.end(), payload, payload + length);
  pending_.resize(pending_.size() + (padded(length) - length));
  position_.tail += sizeof record + padded(length);
  if (pending_.size() >= kBatch) error_ = write_out();
  return error_;
}

int LogWriter::write_out() {
  if (pending_.empty()) return 0;
  const std::uint64_t end = pending_at_ + pending_.size();
  if (end > position_.reserved) {
    std::uint64_t wanted = std::max(end, position_.reserved + kReserveStep);
    if (medium_.reserve(wanted) != 0) {
      wanted = end;  // a store that is nearly full
      if (const int error = medium_.reserve(wanted)) return error;
    }
    position_.reserved = wanted;
  }
  const int error = medium_.write(pending_at_, pending_.data(), pending_.size());
  pending_.clear();
  return error;
}

int LogWriter::extent(std::uint64_t offset, const void* data, std::size_t length) {
  return append(RecordType::extent, offset, data, length);
}

int LogWriter::commit(std::uint64_t file_size) {
  if (const int error = append(RecordType::commit, file_size, nullptr, 0)) return error;
  error_ = write_out();
  return error_ != 0 ? error_ : medium_.persist();
}

}  // namespace nvio
