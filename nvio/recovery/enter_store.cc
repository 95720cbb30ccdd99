#include "enter_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "../system/real.h"
#include "left_over.h"

namespace nvio {

// All who come in do so at the door, one after the other, and hold the lock before they leave it.
// So who shares the lock there and cannot have it alone shares it with one who lives, and who came
// in himself once the store was settled. Else nobody lives who wrote into it, whatever happened to
// those who had it alone meanwhile: they may have been killed, or have recovered it and let it be.
LifeLock enter_store(const std::string& folder, std::uint32_t nodes, std::string& remark,
                     std::string& why) {
  // A process that ends just now may be removing the folder: then it is made anew.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
      why = failed("cannot make the store's folder " + folder);
      return LifeLock();
    }
    struct stat status {};
    if (lstat(folder.c_str(), &status) != 0) continue;
    if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
      why = folder + " is not a folder of this user's alone; it is left as it is";
      return LifeLock();
    }
    LifeLock life(real().open((folder + "/alive").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!life.is_open()) continue;
    const LifeLock::Door door(life);
    if (!life.share()) continue;
    if (life.take_alone() && !settle_left_over(folder, nodes, remark, why)) return LifeLock();
    if (life.share()) return life;
  }
  why = failed("cannot lock the store's folder " + folder);
  return LifeLock();
}

}  // namespace nvio
