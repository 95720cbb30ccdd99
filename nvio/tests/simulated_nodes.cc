#include "simulated_nodes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "../manager/manager.h"
#include "../nodes/rendezvous.h"
#include "../settings/launcher.h"
#include "../system/real.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLogCapacity = 512 << 10;  // small: a log that is full must be lived with
constexpr char kThreadName[] = "node ";            // of a node's manager and of its threads

SimulatedNodes* the_nodes = nullptr;
thread_local int acting_on = -1;

// A thread inherits the name of the one that starts it, so a manager's workers have its name.
std::uint32_t node_of_thread() {
  if (acting_on < 0) {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    acting_on = std::strncmp(name, kThreadName, sizeof kThreadName - 1) == 0
                    ? std::atoi(name + sizeof kThreadName - 1)
                    : 0;
  }
  return static_cast<std::uint32_t>(acting_on);
}

}  // namespace

// One opening of a node's log: every process has its own, the medium is the node's.
class SimulatedNodes::Log : public Medium {
 public:
  Log(SimulatedNodes& nodes, std::shared_ptr<SimulatedMedium> medium)
      : nodes_(nodes), medium_(std::move(medium)) {}

  int reserve(std::uint64_t size) override {
    const std::lock_guard guard(nodes_.mutex_);
    return medium_->reserve(size);
  }

  int write(std::uint64_t offset, const void* data, std::size_t length) override {
    const std::lock_guard guard(nodes_.mutex_);
    const std::size_t first = nodes_.cut(length);
    if (first == length) return medium_->write(offset, data, length);
    if (const int error = medium_->write(offset, data, first)) return error;
    nodes_.look_();
    return medium_->write(offset + first, static_cast<const char*>(data) + first, length - first);
  }

  int persist() override {
    const std::lock_guard guard(nodes_.mutex_);
    if (nodes_.cut(1) == 0) nodes_.look_();
    return medium_->persist();
  }

  int persist_name() override {
    const std::lock_guard guard(nodes_.mutex_);
    if (nodes_.cut(1) == 0) nodes_.look_();
    return medium_->persist_name();
  }

  Survives survives() const override { return Survives::machine; }

 private:
  SimulatedNodes& nodes_;
  std::shared_ptr<SimulatedMedium> medium_;
};

SimulatedNodes::SimulatedNodes(const Settings& settings, std::string file, std::uint64_t seed)
    : settings_(settings),
      file_(std::move(file)),
      plain_(&real()),
      wrapped_(*plain_),
      random_(seed),
      unsynced_(settings.nodes) {
  if (the_nodes != nullptr) throw std::logic_error("two SimulatedNodes at a time");
  the_nodes = this;
  wrapped_.pwrite = write_file;
  wrapped_.pwritev = write_file_vectors;
  wrapped_.ftruncate = truncate_file;
  wrapped_.fsync = sync_file;
  set_real(&wrapped_);
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) start_manager(node);
}

SimulatedNodes::~SimulatedNodes() {
  for (std::thread& manager : managers_) manager.join();
  set_real(plain_);
  the_nodes = nullptr;
}

SimulatedNodes& SimulatedNodes::self() { return *the_nodes; }

// The threads that it starts act there, too: those of a session that write back.
void SimulatedNodes::act_on(std::uint32_t node) {
  acting_on = static_cast<int>(node);
  pthread_setname_np(pthread_self(), (kThreadName + std::to_string(node)).c_str());
}

// As nvio-manager does it, but for being a process.
void SimulatedNodes::start_manager(std::uint32_t node) {
  Settings own = settings_;
  own.node = node;
  std::string why;
  std::shared_ptr<Session> session = Session::join(own, why);
  if (session == nullptr) throw std::runtime_error(why);
  const std::string lock = session->folder() + "/manager.lock";
  std::vector<std::unique_ptr<Listener>> listeners;
  listeners.push_back(listen_at(local_address(own, node), {}, why));
  if (listeners.back() == nullptr) throw std::runtime_error(why);
  managers_.emplace_back(
      [node, session = std::move(session), lock, listeners = std::move(listeners)]() mutable {
        pthread_setname_np(pthread_self(), (kThreadName + std::to_string(node)).c_str());
        ManagerOptions options;
        options.node = node;
        run_manager(*session, std::move(listeners), options);
        unlink((session->folder() + "/manager").c_str());
        session.reset();
      });
}

std::unique_ptr<Medium> SimulatedNodes::open_log(const std::string& path) {
  const std::lock_guard guard(mutex_);
  std::shared_ptr<SimulatedMedium>& medium = logs_[path];
  // The name in the folder is real, so that a log which nvio deletes is gone here, too.
  if (!fs::exists(path)) medium = nullptr;
  if (medium == nullptr) {
    std::ofstream name(path);
    medium = std::make_shared<SimulatedMedium>(kLogCapacity);
  }
  return std::make_unique<Log>(*this, medium);
}

// In place of medium/file_medium.cc.
std::unique_ptr<Medium> open_file_medium(const std::string& path, std::string& /*why*/) {
  return SimulatedNodes::self().open_log(path);
}

std::unique_ptr<Medium> open_tmpfs_medium(const std::string& path, std::string& why) {
  return open_file_medium(path, why);
}

void SimulatedNodes::interrupt_every(double mean, std::function<void()> look) {
  const std::lock_guard guard(mutex_);
  mean_ = mean;
  left_ = mean;
  look_ = [this, look = std::move(look)] {
    looking_ = true;
    look();
    looking_ = false;
  };
}

// How much of a write of `length` bytes is done before the next look; all of it if there is none.
std::size_t SimulatedNodes::cut(std::size_t length) {
  if (mean_ == 0 || looking_ || length == 0) return length;
  left_ -= 1 + static_cast<double>(length) / SimulatedMedium::kLine;
  if (left_ > 0) return length;
  left_ = std::exponential_distribution<double>(1 / mean_)(random_);
  return random_() % length;
}

bool SimulatedNodes::is_the_file(int fd) const {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(file_.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// The pages that a node is about to write, as they are until it makes them durable.
void SimulatedNodes::remember(std::uint32_t node, std::uint64_t offset, std::size_t length) {
  const int fd = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  for (std::uint64_t page = offset / kPage; page * kPage < offset + length; ++page) {
    if (unsynced_[node].contains(page)) continue;
    std::string bytes(kPage, '\0');
    if (::pread(fd, bytes.data(), kPage, static_cast<off_t>(page * kPage)) >= 0) {
      unsynced_[node].emplace(page, std::move(bytes));
    }
  }
  ::close(fd);
}

ssize_t SimulatedNodes::write_file(int fd, const void* data, std::size_t length, off_t offset) {
  SimulatedNodes& nodes = self();
  const std::lock_guard guard(nodes.mutex_);
  if (nodes.looking_ || !nodes.is_the_file(fd)) return ::pwrite(fd, data, length, offset);
  nodes.remember(node_of_thread(), static_cast<std::uint64_t>(offset), length);
  const std::size_t first = nodes.cut(length);
  if (first < length) {
    if (first > 0 && ::pwrite(fd, data, first, offset) != static_cast<ssize_t>(first)) return -1;
    nodes.look_();
  }
  return ::pwrite(fd, data, length, offset);
}

ssize_t SimulatedNodes::write_file_vectors(int fd, const iovec* vectors, int count, off_t offset) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    all.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return write_file(fd, all.data(), all.size(), offset);
}

// A new size is the file system's at once; what a node had written beyond it is void.
int SimulatedNodes::truncate_file(int fd, off_t size) {
  SimulatedNodes& nodes = self();
  const std::lock_guard guard(nodes.mutex_);
  if (nodes.looking_ || !nodes.is_the_file(fd)) return ::ftruncate(fd, size);
  if (nodes.cut(1) == 0) nodes.look_();
  const auto end = static_cast<std::uint64_t>(size);
  for (auto& pages : nodes.unsynced_) {
    pages.erase(pages.lower_bound((end + kPage - 1) / kPage), pages.end());
    const auto last = pages.find(end / kPage);
    if (last != pages.end()) last->second.replace(end % kPage, kPage, kPage - end % kPage, '\0');
  }
  return ::ftruncate(fd, size);
}

int SimulatedNodes::sync_file(int fd) {
  SimulatedNodes& nodes = self();
  const std::lock_guard guard(nodes.mutex_);
  if (nodes.looking_ || !nodes.is_the_file(fd)) return 0;
  if (nodes.cut(1) == 0) nodes.look_();
  nodes.unsynced_[node_of_thread()].clear();
  return 0;
}

std::set<std::uint32_t> SimulatedNodes::writers_of(std::uint64_t begin, std::uint64_t end) {
  const std::lock_guard guard(mutex_);
  std::set<std::uint32_t> writers;
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
    const auto page = unsynced_[node].lower_bound(begin / kPage);
    if (page != unsynced_[node].end() && page->first * kPage < end) writers.insert(node);
  }
  return writers;
}

std::vector<std::string> SimulatedNodes::stop(const std::vector<Fate>& fates,
                                              const std::string& folder) {
  std::vector<std::string> stores;
  const int fd = ::open(file_.c_str(), O_RDWR | O_CLOEXEC);
  for (std::uint32_t node = 0; node < settings_.nodes; ++node) {
    for (const auto& [page, bytes] : unsynced_[node]) {
      if (fates[node] == Fate::ended || random_() % 2 == 0) continue;
      struct stat status {};
      ::fstat(fd, &status);
      const std::uint64_t at = page * kPage;
      const auto size = static_cast<std::uint64_t>(status.st_size);
      if (at >= size) continue;
      if (::pwrite(fd, bytes.data(), std::min(kPage, size - at), static_cast<off_t>(at)) < 0) {
        throw std::runtime_error("cannot take a page back");
      }
    }
    if (fates[node] == Fate::lost) continue;
    stores.push_back(folder + "/node" + std::to_string(node));
    fs::create_directories(stores.back());
    fs::permissions(stores.back(), fs::perms::owner_all);
    const std::ofstream alive(stores.back() + "/alive");
    const std::string own = store_folder(settings_, node) + "/";
    for (const auto& [path, medium] : logs_) {
      if (!path.starts_with(own) || medium == nullptr) continue;
      // A deletion that nothing made durable may be taken back.
      const bool is_back = fates[node] != Fate::ended && random_() % 2 == 0;
      if (!fs::exists(path) && !is_back) continue;
      const auto content = medium->content();
      const std::vector<std::byte> left =
          fates[node] == Fate::ended ? std::vector<std::byte>(content.begin(), content.end())
                                     : medium->crash(random_);
      std::ofstream(stores.back() + "/" + path.substr(own.size()), std::ios::binary)
          .write(reinterpret_cast<const char*>(left.data()),
                 static_cast<std::streamsize>(left.size()));
    }
  }
  ::close(fd);
  return stores;
}

OneOnEachNode::OneOnEachNode(const Settings& settings, const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  for (std::uint32_t node = 0; node < settings.nodes; ++node) {
    SimulatedNodes::act_on(node);
    Settings own = settings;
    own.node = node;
    std::string why;
    jobs_.push_back(Job::join(own, why));
    EXPECT_NE(jobs_.back(), nullptr) << why;
    files_.push_back(jobs_.back()->acquire(fd, file, own.file));
  }
  ::close(fd);
}

JobFile& OneOnEachNode::on(std::uint32_t node) {
  SimulatedNodes::act_on(node);
  return *files_[node];
}

void OneOnEachNode::close() {
  for (std::uint32_t node = 0; node < jobs_.size(); ++node) {
    SimulatedNodes::act_on(node);
    EXPECT_EQ(jobs_[node]->release(files_[node]), 0);
  }
}

}  // namespace nvio
