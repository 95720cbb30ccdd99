// A file on tmpfs that several processes map: the memory that a node's cache is made of, without
// the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nvio::bench {

class SharedFile {
 public:
  // Makes the file and fills it. Processes forked from now on share the mapping. Throws
  // std::runtime_error.
  SharedFile(const std::string& path, std::size_t size);
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile();

  // Has this process enter all pages in its own table, as one has that wrote a cached file.
  void touch() const;
  // Fills `buffer` with what lies at an offset.
  void copy_out(std::uint64_t offset, std::vector<char>& buffer) const;

 private:
  std::size_t size_;
  char* memory_ = nullptr;
};

}  // namespace nvio::bench
