// A store's folder as recovery works on it: held open from the first look, so that what was judged
// is what is worked on, whatever is put under its name meanwhile.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "life_lock.h"

namespace nvio {

// What lies in a store's folder beside its redo logs. A manager that was killed leaves the last
// two.
inline constexpr const char* kStoreFiles[] = {"segment", "alive", "manager", "manager.lock"};

class StoreFolder {
 public:
  // Whether there is a folder at `path` is told by is_open() and why_no_store().
  explicit StoreFolder(std::string path);
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;
  ~StoreFolder();

  bool is_open() const { return error_ == 0; }
  // Why there is no store at the path, in a sentence; empty if there is one.
  std::string why_no_store() const;
  // Whether it is of this user alone: nobody else can have put something into it.
  bool is_own() const;
  // Who holds it: living processes of the job share a lock; who recovers it, or begins it anew, has
  // it alone.
  LifeLock::Kind lock() const;
  // From here on root (an epilog) acts as the store's owner: what stands in the store decides which
  // paths are written, and nobody may reach others' files that way. False, with a sentence, when it
  // cannot, when this is another user's store, or when others than its owner could have written it.
  bool become_owner(std::string& why) const;

  // Names of its redo logs, in the order of their numbers: the later one holds what is newer.
  // Nothing, with errno, where they cannot be listed.
  std::optional<std::vector<std::string>> logs() const;
  // Where something lies in the folder, for people.
  std::string path_of(const std::string& name) const;
  bool has(const std::string& name) const;
  // Whether something there was made before the machine was started last, by the clock.
  bool is_from_before_the_boot(const std::string& name) const;
  // A descriptor of a regular file, or -1 with errno. Links are not followed.
  int open(const std::string& name, int flags) const;
  void remove(const std::string& name) const;
  // What was removed so far does not come back when the machine restarts.
  void persist() const;

 private:
  std::string inside(const std::string& name) const;

  std::string path_;
  int fd_;
  struct stat status_ {};
  int error_ = 0;  // errno of opening it
};

}  // namespace nvio
