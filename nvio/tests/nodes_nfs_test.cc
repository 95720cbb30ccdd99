// Several nodes on a file system as NFS: what a client has written others see only once it is
// flushed, and they have opened the file since.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../system/real.h"
#include "simulated_nodes.h"
#include "temporary_store.h"

namespace nvio {
namespace {

constexpr std::uint64_t kPage = 4096;

// The clients of the nodes of one SimulatedNodes, in front of one file: made after it, and to
// outlive it.
class Clients {
 public:
  Clients(const std::string& path, std::uint32_t nodes)
      : server_(::open(path.c_str(), O_RDWR | O_CLOEXEC)), wrapped_(real()), clients_(nodes) {
    the_ = this;
    wrapped_.pread = [](int fd, void* bytes, std::size_t length, off_t offset) {
      if (!the_->is_the_file(fd)) return ::pread(fd, bytes, length, offset);
      return the_->read(static_cast<char*>(bytes), length, static_cast<std::uint64_t>(offset));
    };
    wrapped_.pwrite = [](int fd, const void* bytes, std::size_t length, off_t offset) {
      if (!the_->is_the_file(fd)) return ::pwrite(fd, bytes, length, offset);
      return the_->write(static_cast<const char*>(bytes), length,
                         static_cast<std::uint64_t>(offset));
    };
    wrapped_.preadv = [](int fd, const iovec* vectors, int count, off_t offset) {
      return each(vectors, count, offset, [fd](const iovec& one, off_t at) {
        return the_->wrapped_.pread(fd, one.iov_base, one.iov_len, at);
      });
    };
    wrapped_.pwritev = [](int fd, const iovec* vectors, int count, off_t offset) {
      return each(vectors, count, offset, [fd](const iovec& one, off_t at) {
        return the_->wrapped_.pwrite(fd, one.iov_base, one.iov_len, at);
      });
    };
    wrapped_.fsync = [](int fd) {
      if (the_->is_the_file(fd)) the_->flush(node());
      return 0;
    };
    wrapped_.close = [](int fd) {
      if (the_->is_the_file(fd)) the_->flush(node());
      return ::close(fd);
    };
    wrapped_.open = open;
    set_real(&wrapped_);
  }
  ~Clients() { ::close(server_); }
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // As the kernel does any time.
  void flush(std::size_t node) {
    const std::lock_guard guard(mutex_);
    for (const auto& [page, bytes] : clients_[node].dirty) {
      for (const auto& [at, byte] : bytes) {
        EXPECT_EQ(::pwrite(server_, &byte, 1, static_cast<off_t>(page * kPage + at)), 1);
      }
    }
    clients_[node].dirty.clear();
  }

 private:
  struct Client {
    std::map<std::uint64_t, std::string> pages;  // as they were when they were read
    std::map<std::uint64_t, std::map<std::uint64_t, char>> dirty;  // by page
  };

  // By the name that SimulatedNodes gives its threads.
  static std::size_t node() {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof name);
    return static_cast<std::size_t>(std::atoi(name + std::strcspn(name, "0123456789")));
  }

  bool is_the_file(int fd) const {
    struct stat status {};
    struct stat own {};
    return ::fstat(fd, &status) == 0 && ::fstat(server_, &own) == 0 && own.st_ino == status.st_ino;
  }

  template <typename One>
  static ssize_t each(const iovec* vectors, int count, off_t offset, One&& one) {
    ssize_t done = 0;
    for (int i = 0; i < count; ++i) done += one(vectors[i], offset + done);
    return done;
  }

  ssize_t read(char* bytes, std::size_t length, std::uint64_t offset) {
    const std::lock_guard guard(mutex_);
    struct stat status {};
    ::fstat(server_, &status);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (offset >= size) return 0;
    length = std::min<std::uint64_t>(length, size - offset);
    Client& client = clients_[node()];
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint64_t page = (offset + i) / kPage;
      std::string& known = client.pages[page];
      if (known.empty()) {
        known.resize(kPage);
        EXPECT_GE(::pread(server_, known.data(), kPage, static_cast<off_t>(page * kPage)), 0);
        if (const auto own = client.dirty.find(page); own != client.dirty.end()) {
          for (const auto& [at, byte] : own->second) known[at] = byte;
        }
      }
      bytes[i] = known[(offset + i) % kPage];
    }
    return static_cast<ssize_t>(length);
  }

  ssize_t write(const char* bytes, std::size_t length, std::uint64_t offset) {
    const std::lock_guard guard(mutex_);
    Client& client = clients_[node()];
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint64_t page = (offset + i) / kPage;
      client.dirty[page][(offset + i) % kPage] = bytes[i];
      if (const auto known = client.pages.find(page); known != client.pages.end()) {
        known->second[(offset + i) % kPage] = bytes[i];
      }
    }
    return static_cast<ssize_t>(length);
  }

  static int open(const char* path, int flags, ...) {  // NOLINT(cert-dcl50-cpp): as open is
    const int fd = ::open(path, flags, 0600);
    if (!the_->is_the_file(fd)) return fd;
    const std::lock_guard guard(the_->mutex_);
    the_->clients_[node()].pages.clear();
    return fd;
  }

  static inline Clients* the_ = nullptr;
  int server_;
  RealPosix wrapped_;
  std::mutex mutex_;  // guards the next one
  std::vector<Client> clients_;
};

class NodesNfsTest : public ::testing::Test, protected TemporaryStore {
 protected:
  NodesNfsTest() : TemporaryStore("nfs") {}

  static constexpr std::uint64_t kSize = 3 << 20;
  static constexpr std::uint64_t kPiece = 600;  // of a node each in turn, many on a page

  // Each node writes pieces of its own, and reads them.
  void run(std::uint64_t seed, Clients& clients, std::string& model) {
    std::mt19937_64 random(seed);
    OneOnEachNode processes(settings_, path_);
    const auto step = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const auto node = static_cast<std::uint32_t>(random() % settings_.nodes);
        const std::uint64_t piece = random() % 16 * (kSize / kPiece / settings_.nodes / 16);
        const std::uint64_t at = (piece * settings_.nodes + node) * kPiece;
        if (random() % 2 == 0) {
          model.replace(at, kPiece, kPiece, static_cast<char>(random()));
          ASSERT_EQ(processes.on(node).write(at, &model[at], kPiece), ssize_t{kPiece});
        } else {
          std::string got(kPiece, ' ');
          ASSERT_EQ(processes.on(node).read(at, got.data(), kPiece), ssize_t{kPiece});
          ASSERT_TRUE(got == model.substr(at, kPiece)) << "seed " << seed << ", node " << node;
        }
        if (random() % 64 == 0) clients.flush(random() % settings_.nodes);
      }
    };
    step(200);
    const auto drained = static_cast<std::uint32_t>(random() % settings_.nodes);
    EXPECT_EQ(processes.on(drained).cached().drain(), 0) << "as if who leads it had been killed";
    step(200);
    EXPECT_EQ(processes.on(0).entry().mode.load(), kActive);
    EXPECT_EQ(processes.on(1).step_aside(), 0);
    step(200);
    processes.close();
  }
};

TEST_F(NodesNfsTest, ANodeSeesItsOwnWritesOnTheWayIntoTheCacheAndOutAndNothingOlderComesLater) {
  settings_.kind = StoreKind::file;
  settings_.capacity = 16 << 20;
  settings_.nodes = 3;
  settings_.quiet = true;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    std::string model(kSize, 'o');
    std::ofstream(path_, std::ios::binary) << model;
    std::optional<SimulatedNodes> nodes(std::in_place, settings_, path_, seed);
    Clients clients(path_, settings_.nodes);
    run(seed, clients, model);
    nodes.reset();
    std::ifstream left(path_, std::ios::binary);
    ASSERT_TRUE(std::string(std::istreambuf_iterator<char>(left), {}) == model) << seed;
    std::filesystem::remove(path_);
  }
}

}  // namespace
}  // namespace nvio
