// Where bytes go that must survive: a byte-addressed medium with an explicit moment from which
// what was written is safe. The redo log is written through this and nothing else, so that a test
// can lose what was not made durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace nvio {

// What a kind of store survives, in words, for reports.
enum class Survives : std::uint8_t { processes, machine };

class Medium {
 public:
  virtual ~Medium() = default;

  // Makes room for `size` bytes, so that a write below it cannot fail for want of space. On
  // failure returns an errno value; what was there stays.
  virtual int reserve(std::uint64_t size) = 0;

  // Writes at an offset; readable at once, safe only after `persist`. Returns an errno value.
  virtual int write(std::uint64_t offset, const void* data, std::size_t length) = 0;

  // All writes before this call are safe when it returns 0 (within what the kind survives).
  virtual int persist() = 0;

  // The name under which it was just made, and that of its folder, are safe: what is on the medium
  // can be found again. Returns an errno value.
  virtual int persist_name() = 0;

  virtual Survives survives() const = 0;
};

// A file on tmpfs (persist does nothing, and honestly says so by `survives`).
std::unique_ptr<Medium> open_tmpfs_medium(const std::string& path, std::string& why);
// A file on a node-local disk; persist is fdatasync.
std::unique_ptr<Medium> open_file_medium(const std::string& path, std::string& why);
// A file on a DAX file system, through libpmem2. Null with a sentence when nvio was built without
// libpmem2 or the file is not on persistent memory (PMEM2_FORCE_GRANULARITY overrides).
std::unique_ptr<Medium> open_pmem_medium(const std::string& path, std::string& why);

}  // namespace nvio
