// A program without MPI-IO, in whose signal handler calls that POSIX allows there are made. The
// handler may have interrupted malloc: so nvio, which is preloaded, must take no memory in them.
//
//   handler
//
// Exits with 0 if none was taken, with no store beside the program, one, or many.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" void* __libc_malloc(size_t size);
extern "C" void* __libc_calloc(size_t count, size_t size);
extern "C" void* __libc_realloc(void* memory, size_t size);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

volatile sig_atomic_t g_handles = 0;
volatile sig_atomic_t g_taken = 0;

void note_taken() {
  if (g_handles != 0) g_taken = g_taken + 1;
}

void handle(int) {
  g_handles = 1;
  struct stat status {};
  const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  fstat(fd, &status);
  dup2(fd, fd + 1);
  close(fd + 1);
  close(fd);
  close(openat(AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC));
  stat("/proc/self/exe", &status);
  lstat("/proc/self/exe", &status);
  fstatat(AT_FDCWD, "/proc/self/exe", &status, 0);
  rename("/proc/self/none", "/proc/self/nothing");
  unlink("/proc/self/none");
  g_handles = 0;
}

// Whether none was taken in a handler of a program like this one, with NVIO_STORE set to `folder`.
bool is_safe_beside(const std::string& folder, char** argv) {
  setenv("NVIO_STORE", folder.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", argv[0], folder.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

extern "C" void* malloc(size_t size) {
  note_taken();
  return __libc_malloc(size);
}
extern "C" void* calloc(size_t count, size_t size) {
  note_taken();
  return __libc_calloc(count, size);
}
extern "C" void* realloc(void* memory, size_t size) {
  note_taken();
  return __libc_realloc(memory, size);
}

int main(int argc, char** argv) {
  if (argc == 2) {
    // Something has come since nvio looked into the folder.
    const std::string made = std::string(argv[1]) + "/made";
    close(open(made.c_str(), O_WRONLY | O_CREAT, 0600));
    std::signal(SIGUSR1, handle);
    std::raise(SIGUSR1);
    unlink(made.c_str());
    if (g_taken != 0)
      std::fprintf(stderr, "memory was taken %d times\n", static_cast<int>(g_taken));
    return g_taken != 0 ? 1 : 0;
  }
  std::string folder = "/tmp/nvio-handler-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  bool is_safe = is_safe_beside(folder, argv);
  const std::string store = folder + "/nvio-" + std::to_string(geteuid()) + "-handler";
  constexpr int kMany = 20;
  for (int i = 0; i < kMany; ++i) {
    mkdir((store + std::to_string(i)).c_str(), 0700);
    if (i == 0) is_safe = is_safe_beside(folder, argv) && is_safe;
  }
  is_safe = is_safe_beside(folder, argv) && is_safe;
  for (int i = 0; i < kMany; ++i) rmdir((store + std::to_string(i)).c_str());
  rmdir(folder.c_str());
  return is_safe ? 0 : 1;
}
