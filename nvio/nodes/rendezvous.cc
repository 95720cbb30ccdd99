#include "rendezvous.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "../settings/launcher.h"
#include "../system/random_ending.h"
#include "../system/real.h"
#include "../transport/wiped.h"

namespace nvio {
namespace {

constexpr std::size_t kSecretBytes = 32;

std::string read_small(const std::string& path) {
  const int fd = real().open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  std::array<char, 512> text{};
  const Wiped no_text(text);
  const ssize_t got = read_fully(fd, text.data(), text.size(), 0);
  real().close(fd);
  return {text.data(), static_cast<std::size_t>(got > 0 ? got : 0)};
}

// Whole or not at all, for whoever reads it meanwhile. With `replace` it takes an older one's
// place.
bool write_small(const std::string& path, const std::string& text, bool replace) {
  const std::string fresh = path + random_ending();
  const int fd = real().open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  bool done = write_own(fd, text.data(), text.size(), 0) >= 0;
  real().close(fd);
  if (done && replace) {
    done = std::rename(fresh.c_str(), path.c_str()) == 0;
  } else if (done) {
    done = link(fresh.c_str(), path.c_str()) == 0;
  }
  const int error = errno;
  real().unlink(fresh.c_str());
  errno = error;
  return done;
}

bool make_folder(const std::string& folder, std::string& why) {
  struct stat status {};
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    why = failed("cannot make " + folder + " for the job's nodes to meet in");
    return false;
  }
  if (lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    why = folder + " is not a folder of this user's alone; it is left as it is";
    return false;
  }
  return true;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string address_file(const Settings& settings, std::uint32_t node) {
  return rendezvous_folder(settings) + "/node." + std::to_string(node);
}

}  // namespace

std::string rendezvous_folder(const Settings& settings) {
  if (settings.rendezvous.empty()) return {};
  return settings.rendezvous + "/nvio-" + std::to_string(geteuid()) + "-" + session_name(settings);
}

bool job_secret(const Settings& settings, std::vector<std::uint8_t>& secret, std::string& why) {
  secret.clear();
  secret.reserve(kSecretBytes);
  const std::string folder = rendezvous_folder(settings);
  if (folder.empty()) return true;
  if (!make_folder(folder, why)) return false;
  const std::string path = folder + "/secret";
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::string text = read_small(path);
    const Wiped no_text(text);
    if (text.size() == 2 * kSecretBytes) {
      for (std::size_t i = 0; i < text.size(); i += 2) {
        const int high = digit(text[i]);
        const int low = digit(text[i + 1]);
        if (high < 0 || low < 0) break;
        secret.push_back(static_cast<std::uint8_t>(high * 16 + low));
      }
      if (secret.size() == kSecretBytes) return true;
    }
    if (!text.empty()) break;
    std::array<unsigned char, kSecretBytes> random{};
    const Wiped no_random(random);
    std::string made;
    made.reserve(2 * kSecretBytes);
    const Wiped no_made(made);
    if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) break;
    for (const unsigned char byte : random) {
      made += "0123456789abcdef"[byte >> 4];
      made += "0123456789abcdef"[byte & 15];
    }
    if (!write_small(path, made, false) && errno != EEXIST) {
      why = failed("cannot write the job's secret " + path);
      return false;
    }
  }
  why = path + " is no secret of nvio; it is left as it is";
  return false;
}

std::string local_address(const Settings& settings, std::uint32_t node) {
  return "unix:" + store_folder(settings, node) + "/manager";
}

std::string published_address(const Settings& settings, std::uint32_t node) {
  const std::string text = read_small(address_file(settings, node));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(0, end);
}

bool publish_address(const Settings& settings, std::uint32_t node, const std::string& address,
                     std::string& why) {
  if (write_small(address_file(settings, node), address + "\n", true)) return true;
  why = failed("cannot write " + address_file(settings, node));
  return false;
}

void withdraw_address(const Settings& settings, std::uint32_t node) {
  const std::string folder = rendezvous_folder(settings);
  if (folder.empty()) return;
  real().unlink(address_file(settings, node).c_str());
  for (std::uint32_t other = 0; other < settings.nodes; ++other) {
    if (!published_address(settings, other).empty()) return;
  }
  real().unlink((folder + "/secret").c_str());
  rmdir(folder.c_str());
}

void remove_rendezvous(const Settings& settings) {
  const std::filesystem::path own = rendezvous_folder(settings);
  if (own.empty()) return;
  std::error_code absent;
  for (const auto& folder : std::filesystem::directory_iterator(own.parent_path(), absent)) {
    if (without_job(folder.path().filename()) != own.filename()) continue;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path(), absent)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("secret") || name.starts_with("node."))
        real().unlink(entry.path().c_str());
    }
    rmdir(folder.path().c_str());
  }
}

}  // namespace nvio
