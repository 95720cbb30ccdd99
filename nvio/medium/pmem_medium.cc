#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "../system/real.h"
#include "medium.h"

#ifdef NVIO_HAVE_PMEM2
#include <dlfcn.h>
#include <libpmem2.h>
#endif

namespace nvio {

#ifdef NVIO_HAVE_PMEM2
namespace {

// libpmem2 brings a dozen libraries along, which a program without persistent memory should not
// carry: it is opened when the first such store is.
struct Pmem2 {
#define NVIO_PMEM2(name) decltype(&pmem2_##name) name
  NVIO_PMEM2(config_new) = nullptr;
  NVIO_PMEM2(config_delete) = nullptr;
  NVIO_PMEM2(config_set_required_store_granularity) = nullptr;
  NVIO_PMEM2(source_from_fd) = nullptr;
  NVIO_PMEM2(source_delete) = nullptr;
  NVIO_PMEM2(map_new) = nullptr;
  NVIO_PMEM2(map_delete) = nullptr;
  NVIO_PMEM2(map_get_address) = nullptr;
  NVIO_PMEM2(map_get_size) = nullptr;
  NVIO_PMEM2(get_memcpy_fn) = nullptr;
  NVIO_PMEM2(get_drain_fn) = nullptr;
  NVIO_PMEM2(errormsg) = nullptr;
#undef NVIO_PMEM2
  bool complete = false;
};

Pmem2 find_pmem2() {
  Pmem2 found;
  void* library = dlopen("libpmem2.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return found;
  found.complete = true;
#define NVIO_PMEM2(name)                                                                  \
  found.name = reinterpret_cast<decltype(&pmem2_##name)>(dlsym(library, "pmem2_" #name)); \
  found.complete = found.complete && found.name != nullptr
  NVIO_PMEM2(config_new);
  NVIO_PMEM2(config_delete);
  NVIO_PMEM2(config_set_required_store_granularity);
  NVIO_PMEM2(source_from_fd);
  NVIO_PMEM2(source_delete);
  NVIO_PMEM2(map_new);
  NVIO_PMEM2(map_delete);
  NVIO_PMEM2(map_get_address);
  NVIO_PMEM2(map_get_size);
  NVIO_PMEM2(get_memcpy_fn);
  NVIO_PMEM2(get_drain_fn);
  NVIO_PMEM2(errormsg);
#undef NVIO_PMEM2
  return found;
}

const Pmem2& pmem2() {
  static const Pmem2 found = find_pmem2();
  return found;
}

// A PmemMedium is only made when the table is complete, which the analyser cannot follow.
// NOLINTBEGIN(clang-analyzer-core.CallAndMessage)

// Stores go past the processor's caches (or are flushed from them); persist is the fence.
class PmemMedium : public Medium {
 public:
  PmemMedium(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  PmemMedium(const PmemMedium&) = delete;
  PmemMedium& operator=(const PmemMedium&) = delete;
  ~PmemMedium() override {
    unmap();
    real().close(fd_);
  }

  // Maps what is there. Returns a sentence, empty on success.
  std::string map() {
    unmap();
    pmem2_config* config = nullptr;
    pmem2_source* source = nullptr;
    std::string why;
    if (pmem2().config_new(&config) != 0 || pmem2().source_from_fd(&source, fd_) != 0 ||
        pmem2().config_set_required_store_granularity(config, PMEM2_GRANULARITY_CACHE_LINE) != 0 ||
        pmem2().map_new(&map_, config, source) != 0) {
      why = pmem2().errormsg();
      map_ = nullptr;
    }
    pmem2().source_delete(&source);
    pmem2().config_delete(&config);
    if (map_ != nullptr) {
      copy_ = pmem2().get_memcpy_fn(map_);
      drain_ = pmem2().get_drain_fn(map_);
    }
    return why;
  }

  int reserve(std::uint64_t size) override {
    if (const int error = reserve_up_to(fd_, size)) return error;
    // Which blocks it has is the file system's to keep: no flush of the processor's caches does.
    if (real().fsync(fd_) != 0) return errno;
    return map().empty() ? 0 : ENOTSUP;
  }

  int write(std::uint64_t offset, const void* data, std::size_t length) override {
    if (map_ == nullptr || offset + length > pmem2().map_get_size(map_)) {
      // Another process reserved more since we mapped.
      if (!map().empty() || offset + length > pmem2().map_get_size(map_)) return ENOSPC;
    }
    copy_(static_cast<char*>(pmem2().map_get_address(map_)) + offset, data, length,
          PMEM2_F_MEM_NODRAIN);
    return 0;
  }

  int persist() override {
    if (drain_ != nullptr) drain_();
    return 0;
  }

  int persist_name() override { return persist_name_of(path_); }

  Survives survives() const override { return Survives::machine; }

 private:
  void unmap() {
    if (map_ != nullptr) pmem2().map_delete(&map_);
    map_ = nullptr;
  }

  int fd_;
  std::string path_;
  pmem2_map* map_ = nullptr;
  pmem2_memcpy_fn copy_ = nullptr;
  pmem2_drain_fn drain_ = nullptr;
};

// NOLINTEND(clang-analyzer-core.CallAndMessage)

}  // namespace

std::unique_ptr<Medium> open_pmem_medium(const std::string& path, std::string& why) {
  const int fd = real().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    why = failed("cannot open " + path);
    return nullptr;
  }
  if (!pmem2().complete) {
    real().close(fd);
    why = "libpmem2.so.1 is not installed: " + path + " cannot lie on persistent memory";
    return nullptr;
  }
  auto medium = std::make_unique<PmemMedium>(fd, path);
  struct stat status {};
  if (real().fstat(fd, &status) == 0 && status.st_size > 0) {
    why = medium->map();
    if (!why.empty()) return nullptr;
  }
  return medium;
}

#else

std::unique_ptr<Medium> open_pmem_medium(const std::string& path, std::string& why) {
  why = path + ": this nvio was built without libpmem2";
  return nullptr;
}

#endif

}  // namespace nvio
