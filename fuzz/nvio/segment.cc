// A store's working memory with any of its tables overwritten by anything: inspecting it and
// recovering from it (dry run) must neither crash nor loop.
#include "store/segment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "recovery/recover.h"

namespace {

// A folder of our own with one whole segment, one file and one group in it.
struct Store {
  Store() {
    char name[] = "/tmp/nvio-fuzz-XXXXXX";
    folder = mkdtemp(name);
    std::string why;
    {
      const auto segment = nvio::Segment::open_or_create(folder + "/segment", 1, why);
      if (segment == nullptr) std::abort();
      if (!segment->add_file()) std::abort();
      nvio::FileEntry& entry = segment->file(0);
      entry.used.store(1);
      entry.size.store(100000);
      std::strcpy(entry.path, "/nonexistent/nvio/file");
      nvio::Bucket& bucket = segment->bucket_of(0, 0);
      const std::uint32_t group = segment->make_group(bucket, 0, 0);
      const std::uint32_t slot = segment->take_slot();
      segment->slot(slot).group.store(group);
      segment->group(group).slot[0] = slot;
      segment->slot(slot).dirty_pages = 1;
      segment->dirty(slot).set(0, 100);
    }
    std::ifstream file(folder + "/segment", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  ~Store() {
    unlink((folder + "/segment").c_str());
    rmdir(folder.c_str());
  }
  std::string folder;
  std::vector<char> bytes;
};

}  // namespace

// The input is a list of (offset, 8 bytes) that are laid over the segment, and taken back after.
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const Store store;
  static const int file = open((store.folder + "/segment").c_str(), O_WRONLY);
  constexpr std::size_t kEdit = 4 + 8;
  constexpr std::uint32_t kHeader = 512;
  // The tables lie in front of the blocks, which are data and cannot mislead anyone.
  const std::size_t tables = store.bytes.size() - 16 * nvio::kBlockSize - 8;
  std::vector<std::uint32_t> edited;
  for (; size >= kEdit; data += kEdit, size -= kEdit) {
    std::uint32_t offset = 0;
    std::memcpy(&offset, data, sizeof offset);
    offset =
        offset % 2 == 0 ? offset / 2 % kHeader : static_cast<std::uint32_t>(offset / 2 % tables);
    if (pwrite(file, data + 4, 8, offset) != 8) std::abort();
    edited.push_back(offset);
  }
  nvio::inspect(store.folder);
  nvio::RecoverOptions options;
  options.dry_run = true;
  options.latest = true;
  nvio::recover(store.folder, options);
  for (const std::uint32_t offset : edited) {
    if (pwrite(file, store.bytes.data() + offset, 8, offset) != 8) std::abort();
  }
  return 0;
}
