#include "list.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "../recovery/recover.h"
#include "../recovery/unwritten.h"
#include "../settings/settings.h"
#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string name_of(uid_t user) {
  const passwd* known = getpwuid(user);
  return known != nullptr ? known->pw_name : std::to_string(user);
}

// As a shell takes it for one word: anybody may have named a folder of /dev/shm.
std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("/._-", c) != nullptr;
  };
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string all = "'";
  for (const char c : word) all += c == '\'' ? "'\\''" : std::string(1, c);
  return all + "'";
}

// As a terminal may have it.
std::string shown(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return text;
}

std::uint64_t logged_bytes(const StoreFolder& folder) {
  std::uint64_t bytes = 0;
  for (const std::string& name : folder.logs().value_or(std::vector<std::string>{})) {
    std::string unreadable;
    const ParsedLog log = parse_log(folder, name, unreadable);
    if (log.usable && !log.file.deleted) bytes += log.bytes;
  }
  return bytes;
}

// Adds what lies in the folder; null if it is no store.
json looked_into(const StoreFolder& folder, json store) {
  if (!folder.why_no_store().empty()) return nullptr;
  std::string why;
  if (!folder.become_owner(why)) {
    store["next"] = why;
    return store;
  }
  const bool is_running = folder.lock() != LifeLock::Kind::none;
  store["state"] = is_running ? "running" : "dead";
  const auto segment = Segment::open_existing(folder, why);
  const bool of_this_boot = segment != nullptr && boot_identifier() == segment->header().boot_id;
  std::uint64_t unwritten = 0;
  for (std::uint32_t i = 0; of_this_boot && i < segment->used_files(); ++i) {
    const FileEntry& entry = segment->file(i);
    if (entry.used.load() == 0 || entry.deleted.load() != 0) continue;
    const std::uint64_t bytes = unwritten_of(*segment, i).bytes;
    store["files"].push_back({{"path", entry.opened_path()}, {"unwritten_bytes", bytes}});
    unwritten += bytes;
  }
  store["unwritten_bytes"] = unwritten;
  store["logged_bytes"] = logged_bytes(folder);
  store["next"] = "nothing: its job is running";
  if (is_running) return store;
  if (segment == nullptr && folder.has("segment") && !folder.is_from_before_the_boot("segment")) {
    store["state"] = "unreadable";
    store["next"] = why;
    return store;
  }
  if (segment != nullptr && !of_this_boot) store["state"] = "restarted";
  store["next"] = std::string("nvio recover ") + (of_this_boot ? "--latest " : "") +
                  quoted(store["path"].get<std::string>());
  return store;
}

// What act() returns in a process of its own, which it may end, or keep for a minute at most.
template <typename Act>
std::optional<json> apart(Act&& act) {
  std::array<int, 2> told{};
  if (pipe2(told.data(), O_CLOEXEC) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    constexpr rlimit kAMinute{60, 60};
    setrlimit(RLIMIT_CPU, &kAMinute);
    try {
      // Names of files are not always UTF-8: not as text.
      const std::vector<std::uint8_t> bytes = json::to_cbor(act());
      for (std::size_t done = 0; done < bytes.size();) {
        const ssize_t n = write(told[1], bytes.data() + done, bytes.size() - done);
        if (n <= 0) _exit(1);
        done += static_cast<std::size_t>(n);
      }
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  close(told[1]);
  std::vector<std::uint8_t> bytes;
  std::array<std::uint8_t, 4096> part{};
  for (ssize_t n = 0; child > 0 && (n = read(told[0], part.data(), part.size())) > 0;) {
    bytes.insert(bytes.end(), part.begin(), part.begin() + n);
  }
  close(told[0]);
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  if (status != 0) return std::nullopt;
  return json::from_cbor(bytes);
}

// What lies in the folder; null if it is no store.
json look_into(const std::string& path) {
  const StoreFolder folder(path);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return nullptr;
  const std::string owner = name_of(status.st_uid);
  const std::string name = fs::path(path).filename();
  json store = {{"path", path},
                {"owner", owner},
                {"job", name.substr(name.find('-', name.find('-') + 1) + 1)},  // nvio-UID-JOB
                {"age_seconds", std::max<time_t>(std::time(nullptr) - status.st_mtime, 0)},
                {"state", "unreadable"},  // or running, dead, restarted
                {"files", json::array()},
                {"unwritten_bytes", 0},  // of all files: what they lack, in the working memory
                {"logged_bytes", 0},     // of completed syncs in its logs
                {"next", "for " + owner + " or root to look at"}};
  if (geteuid() != 0 && geteuid() != status.st_uid) return store;
  // Its owner may change it while it is read, and so end who reads it.
  if (const auto found = apart([&] { return looked_into(folder, store); })) return *found;
  store["next"] = "for " + owner + " to look at: what lies there ends who reads it";
  return store;
}

std::string as_text(const json& store) {
  const auto word = [&](const char* key) { return shown(store[key].get<std::string>()); };
  std::string text = word("path") + "\n  " + word("state") + ", of " + word("owner") + ", job " +
                     word("job") + ", " + store["age_seconds"].dump() + " s old";
  if (word("state") != "unreadable") {
    text += ": " + std::to_string(store["files"].size()) + " files, " +
            store["unwritten_bytes"].dump() + " bytes not written to them, " +
            store["logged_bytes"].dump() + " bytes in redo logs";
  }
  text += "\n";
  for (const json& file : store["files"]) {
    text += "  " + shown(file["path"].get<std::string>()) + ": " + file["unwritten_bytes"].dump() +
            " bytes not written\n";
  }
  return text + "  next: " + word("next") + "\n";
}

}  // namespace

int list_stores(const ListOptions& options) {
  std::vector<std::string> folders = options.folders;
  if (folders.empty()) folders.push_back(read_settings_of_process().store);
  std::vector<json> stores;
  std::string looked_at;
  for (const std::string& folder : folders) {
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("nvio-") || name.size() < 6 ||
          std::isdigit(static_cast<unsigned char>(name[5])) == 0) {
        continue;
      }
      if (json store = look_into(entry.path()); !store.is_null())
        stores.push_back(std::move(store));
    }
    if (unreadable) {
      std::fprintf(stderr, "nvio list: cannot look into %s: %s\n", folder.c_str(),
                   unreadable.message().c_str());
      return 1;
    }
    looked_at += (looked_at.empty() ? "" : ", ") + folder;
  }
  std::sort(stores.begin(), stores.end(),
            [](const json& a, const json& b) { return a["path"] < b["path"]; });
  if (options.json) {
    constexpr int kIndent = 2;
    std::puts(json(stores).dump(kIndent, ' ', false, json::error_handler_t::replace).c_str());
    return 0;
  }
  for (const json& store : stores) std::fputs(as_text(store).c_str(), stdout);
  if (stores.empty()) std::printf("there is no store in %s\n", looked_at.c_str());
  return 0;
}

}  // namespace nvio
