// Nodes of one job that may stop at any moment, in one process: each with its real manager (a
// thread here), its redo logs on simulated media, and a kernel cache of its own over the file that
// they share. Between any two stores a test may look at what each node would leave behind.
//
// What stands in for the machine: the media (medium/simulated_medium.h) take the place of
// medium/file_medium.cc at link time, and the C library's functions are wrapped by set_real(). So
// there may be one SimulatedNodes at a time, made before the nodes' jobs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../interpose/contract.h"
#include "../medium/simulated_medium.h"
#include "../nodes/job.h"
#include "../settings/settings.h"

namespace nvio {

// What became of a node at a crash.
enum class Fate : std::uint8_t {
  ended,      // its processes were killed: whatever they had written is there
  restarted,  // it lost what neither its store nor the file system had made durable
  lost,       // its store is gone, too
};

class SimulatedNodes {
 public:
  // `file` is the one that the job writes; `settings` those of the job (store, session, nodes).
  SimulatedNodes(const Settings& settings, std::string file, std::uint64_t seed);
  SimulatedNodes(const SimulatedNodes&) = delete;
  SimulatedNodes& operator=(const SimulatedNodes&) = delete;
  // Waits for the managers, which end with the last job.
  ~SimulatedNodes();

  // Calls `look` after a random number of stores, `mean` on average, again and again: between two
  // writes of any node or within one, while the thread that writes waits.
  void interrupt_every(double mean, std::function<void()> look);

  // The node on which the calling thread acts from now on.
  static void act_on(std::uint32_t node);

  // The nodes that wrote into [begin, end) of the file since they last made it durable.
  std::set<std::uint32_t> writers_of(std::uint64_t begin, std::uint64_t end);

  // What the nodes would leave if all stopped now, each its own way: the stores' folders below
  // `folder` (of those not lost), and in the file itself what reached it. For `look` only.
  std::vector<std::string> stop(const std::vector<Fate>& fates, const std::string& folder);

 private:
  class Log;
  friend std::unique_ptr<Medium> open_file_medium(const std::string&, std::string&);

  std::unique_ptr<Medium> open_log(const std::string& path);
  std::size_t cut(std::size_t length);
  void start_manager(std::uint32_t node);
  void remember(std::uint32_t node, std::uint64_t offset, std::size_t length);
  static SimulatedNodes& self();
  static ssize_t write_file(int fd, const void* data, std::size_t length, off_t offset);
  static ssize_t write_file_vectors(int fd, const iovec* vectors, int count, off_t offset);
  static int truncate_file(int fd, off_t size);
  static int sync_file(int fd);
  bool is_the_file(int fd) const;

  Settings settings_;
  std::string file_;
  const RealPosix* plain_;
  RealPosix wrapped_;
  std::mt19937_64 random_;
  std::recursive_mutex mutex_;  // guards all below
  std::map<std::string, std::shared_ptr<SimulatedMedium>> logs_;
  // For each node the pages of the file that it wrote since its last fsync, as they are on the
  // file system's disks.
  std::vector<std::map<std::uint64_t, std::string>> unsynced_;
  double mean_ = 0;
  double left_ = 0;
  bool looking_ = false;
  std::function<void()> look_;
  std::vector<std::thread> managers_;
};

// A process of the job on each of the nodes, with the file open.
class OneOnEachNode {
 public:
  OneOnEachNode(const Settings& settings, const std::string& file);
  // The calling thread acts on this node from now on; its file.
  JobFile& on(std::uint32_t node);
  // Every process closes the file; they go when this goes.
  void close();

 private:
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<JobFile*> files_;
};

}  // namespace nvio
