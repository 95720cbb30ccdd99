// Where recovery writes the bytes of one file: to the file itself, if it is still the one that was
// cached; else, where the user named a folder for that, to a new file there, which has its name
// once all of it is there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recover.h"

namespace nvio {

// Such a new file. `partial` is its name until then, and none that a file of the job may have.
struct NewFile {
  std::string path;
  std::string partial;
};

class Target {
 public:
  // Opens it. Where it cannot be had, `line` says why, and nothing is written. `made`: the new
  // files of this recovery so far.
  Target(const FileIdentity& file, const RecoverOptions& options, RecoveredFile& line,
         std::vector<NewFile>& made);
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  // The job was deleting the file, and it is gone: there is nothing to be rebuilt.
  bool is_moot() const { return is_moot_; }
  // What adjoins goes in one call, up to 1 MiB. Bytes of length 0 are none.
  void write(std::uint64_t offset, const void* data, std::size_t length);
  // At the end: the file is `size` bytes long at least, and durable.
  void finish(std::uint64_t size);

 private:
  // Errors are -ENOENT where the file is certainly not there any more.
  int open_itself(std::string& why) const;
  int open_instead(std::vector<NewFile>& made, std::string& why) const;
  void write_out();
  bool make_as_long_as(std::uint64_t size);

  const FileIdentity& file_;
  const RecoverOptions& options_;
  RecoveredFile& line_;
  int fd_ = -1;
  bool is_moot_ = false;
  std::uint64_t from_ = 0;
  std::vector<char> pending_;
};

// Such a file is whole: it gets its name. False with errno where it cannot, as where something has
// that name.
bool take_name(const NewFile& file);

}  // namespace nvio
