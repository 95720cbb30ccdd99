#include "list.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "../cache/segment.h"
#include "../posix/real.h"
#include "../recovery/recover.h"
#include "../recovery/store_folder.h"
#include "../recovery/unwritten.h"
#include "../settings/settings.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

struct ListedFile {
  std::string path;
  std::uint64_t unwritten = 0;  // bytes that the file lacks, in the working memory
};

struct ListedStore {
  std::string path, owner, job;
  std::uint64_t age = 0;  // seconds
  std::string state;      // running, dead, restarted, unreadable
  std::vector<ListedFile> files;
  std::uint64_t unwritten = 0;  // of all files
  std::uint64_t logged = 0;     // bytes of completed syncs in its logs
  std::string next;             // what to do
};

std::string name_of(uid_t user) {
  const passwd* known = getpwuid(user);
  return known != nullptr ? known->pw_name : std::to_string(user);
}

std::uint64_t logged_bytes(const StoreFolder& folder) {
  std::uint64_t bytes = 0;
  for (const std::string& name : folder.logs()) {
    std::string unreadable;
    const ParsedLog log = parse_log(folder, name, unreadable);
    if (log.usable && !log.file.deleted) bytes += log.bytes;
  }
  return bytes;
}

// What lies in the folder; nothing if it is no store.
std::optional<ListedStore> look_into(const std::string& path) {
  const StoreFolder folder(path);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return std::nullopt;
  ListedStore store;
  store.path = path;
  store.owner = name_of(status.st_uid);
  const std::string name = fs::path(path).filename();
  store.job = name.substr(name.find('-', name.find('-') + 1) + 1);  // nvio-UID-JOB
  store.age = static_cast<std::uint64_t>(std::max<time_t>(std::time(nullptr) - status.st_mtime, 0));
  if (geteuid() != 0 && geteuid() != status.st_uid) {
    store.state = "unreadable";
    store.next = "for " + store.owner + " or root to look at";
    return store;
  }
  if (!folder.why_no_store().empty()) return std::nullopt;
  store.state = folder.lock() != StoreFolder::Lock::none ? "running" : "dead";
  std::string why;
  const auto segment =
      Segment::open_existing(folder.open("segment", O_RDONLY), folder.path_of("segment"), why);
  const bool of_this_boot = segment != nullptr && boot_identifier() == segment->header().boot_id;
  for (std::uint32_t i = 0; of_this_boot && i < segment->used_files(); ++i) {
    const FileEntry& entry = segment->file(i);
    if (entry.used.load() == 0 || entry.deleted.load() != 0) continue;
    store.files.push_back({entry.opened_path(), unwritten_of(*segment, i).bytes});
    store.unwritten += store.files.back().unwritten;
  }
  store.logged = logged_bytes(folder);
  if (store.state == "running") {
    store.next = "nothing: its job is running";
    return store;
  }
  if (segment != nullptr && !of_this_boot) store.state = "restarted";
  store.next = std::string("nvio recover ") + (of_this_boot ? "--latest " : "") + path;
  return store;
}

std::string as_text(const ListedStore& store) {
  std::string text = store.path + "\n  " + store.state + ", of " + store.owner + ", job " +
                     store.job + ", " + std::to_string(store.age) + " s old";
  if (store.state != "unreadable") {
    text += ": " + std::to_string(store.files.size()) + " files, " +
            std::to_string(store.unwritten) + " bytes not written to them, " +
            std::to_string(store.logged) + " bytes in redo logs";
  }
  text += "\n";
  for (const ListedFile& file : store.files) {
    text += "  " + file.path + ": " + std::to_string(file.unwritten) + " bytes not written\n";
  }
  return text + "  next: " + store.next + "\n";
}

nlohmann::json as_json(const ListedStore& store) {
  nlohmann::json files = nlohmann::json::array();
  for (const ListedFile& file : store.files) {
    files.push_back({{"path", file.path}, {"unwritten_bytes", file.unwritten}});
  }
  return {{"path", store.path},
          {"owner", store.owner},
          {"job", store.job},
          {"age_seconds", store.age},
          {"state", store.state},
          {"files", files},
          {"unwritten_bytes", store.unwritten},
          {"logged_bytes", store.logged},
          {"next", store.next}};
}

}  // namespace

int list_stores(const ListOptions& options) {
  std::vector<std::string> folders = options.folders;
  if (folders.empty()) folders.push_back(read_settings_of_process().store);
  std::vector<ListedStore> stores;
  std::string looked_at;
  for (const std::string& folder : folders) {
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("nvio-") || name.size() < 6 ||
          std::isdigit(static_cast<unsigned char>(name[5])) == 0) {
        continue;
      }
      if (auto store = look_into(entry.path()); store) stores.push_back(std::move(*store));
    }
    if (unreadable) {
      std::fprintf(stderr, "nvio list: cannot look into %s: %s\n", folder.c_str(),
                   unreadable.message().c_str());
      return 1;
    }
    looked_at += (looked_at.empty() ? "" : ", ") + folder;
  }
  std::sort(stores.begin(), stores.end(),
            [](const ListedStore& a, const ListedStore& b) { return a.path < b.path; });
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const ListedStore& store : stores) all.push_back(as_json(store));
    constexpr int kIndent = 2;
    std::puts(all.dump(kIndent, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const ListedStore& store : stores) std::fputs(as_text(store).c_str(), stdout);
  if (stores.empty()) std::printf("there is no store in %s\n", looked_at.c_str());
  return 0;
}

}  // namespace nvio
