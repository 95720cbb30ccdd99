// nvio-manager STORE SESSION NODES NODE: serves one node's part of a job's files to the other
// nodes. Started by the job's own processes (nodes/start_manager.h), who give their environment;
// tells on standard output whether it is ready, and ends when the last of them is gone.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "../nodes/rendezvous.h"
#include "../system/host_name.h"
#include "../system/real.h"
#include "manager.h"

namespace {

using namespace nvio;

void tell(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  close(STDOUT_FILENO);
  open("/dev/null", O_WRONLY);
}

// A core would hold the job's secret and its users' data. A limit on its size would not do: the
// kernel does not ask for it where a program takes cores, as systemd-coredump does.
void keep_out_of_core_dumps() { prctl(PR_SET_DUMPABLE, 0); }

// Each process of the job holds a descriptor here. Only here: programs that use select() must get
// no higher numbers than they asked for.
void raise_limit_of_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Started by a rank, it would share that one's processor, which its MPI may never leave idle. The
// kernel allows those that the job has, where a cpuset says which.
void take_all_processors() {
  std::array<cpu_set_t, 8> all{};  // as many as the kernel knows
  std::memset(all.data(), 0xFF, sizeof all);
  sched_setaffinity(0, sizeof all, all.data());
}

int serve(const Settings& settings) {
  std::string why;
  const std::uint32_t node = settings.node.value_or(0);
  ManagerOptions options;
  options.node = node;
  options.silence.most = std::chrono::seconds(settings.silence);
  if (!job_secret(settings, options.secret, why)) {
    tell(why);
    return 1;
  }
  auto session = Session::join(settings, why);
  if (session == nullptr) {
    tell(why);
    return 1;
  }
  // One manager a node: who holds this lock is it, and what an earlier one left is no one's.
  const std::string folder = session->folder();
  const int lock = open((folder + "/manager.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) {
    tell("another");
    return 0;
  }
  // For people, and for who measures it.
  const std::string self = std::to_string(getpid()) + "\n";
  if (ftruncate(lock, 0) != 0 || write_fully(lock, self.data(), self.size(), 0) < 0) {
    tell("cannot write " + folder + "/manager.lock");
    return 1;
  }
  const std::string local = local_address(settings, node);
  unlink((folder + "/manager").c_str());
  std::vector<std::unique_ptr<Listener>> listeners;
  listeners.push_back(listen_at(local, options.silence, why));
  if (listeners.back() != nullptr && !settings.rendezvous.empty()) {
    listeners.push_back(listen_at("tcp::0", options.silence, why));
    if (listeners.back() != nullptr) {
      const std::string port = listeners.back()->address().substr(5);
      const std::string host = settings.address.empty() ? host_name() : settings.address;
      if (!publish_address(settings, node, "tcp:" + host + ":" + port, why)) {
        listeners.back() = nullptr;
      }
    }
  }
  int result = 1;
  if (listeners.back() == nullptr) {
    tell(why);
  } else {
    tell("ready");
    result = run_manager(*session, std::move(listeners), options);
    withdraw_address(settings, node);
  }
  unlink((folder + "/manager").c_str());
  unlink((folder + "/manager.lock").c_str());
  close(lock);
  return result;
}

int main_throwing(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "nvio-manager is started by the processes of a job, not by hand\n");
    return 2;
  }
  // Whatever the program had open must not stay open for our sake.
  close_range(3, ~0U, 0);
  const pid_t child = fork();
  if (child != 0) _exit(child < 0 ? 1 : 0);
  setsid();
  if (chdir("/") != 0) return 1;
  umask(077);
  keep_out_of_core_dumps();
  raise_limit_of_descriptors();
  take_all_processors();
  // It must outlive the processes that it serves, whatever a batch system sends to all of them, and
  // whatever limit one of them's write runs into.
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGXFSZ, SIGUSR1, SIGUSR2}) {
    std::signal(signal, SIG_IGN);
  }
  Settings settings = read_settings_of_process();
  settings.store = argv[1];
  settings.session = argv[2];
  settings.nodes = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  settings.node = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  if (settings.nodes == 0 || *settings.node >= settings.nodes) {
    tell("no such node");
    return 2;
  }
  return serve(settings);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return main_throwing(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nvio-manager: %s\n", error.what());
    return 1;
  }
}
