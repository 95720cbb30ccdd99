// A program whose ranks start others, which use a file by its name while the ranks have it open:
// they find all that was written before, and what they write is there afterwards.
//
//   started FOLDER
//
// Prints "started: 0 differences" when all is as the kernel would have it.

#include <fcntl.h>
#include <mpi.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "checks.h"
#include "children.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;

constexpr int kPiece = 5000;  // ranks share pages

// A file of a piece a rank, open in all of them, that only the cache has yet.
class Shared {
 public:
  explicit Shared(const std::string& path) : path_(path) {
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    if (MPI_File_open(MPI_COMM_WORLD, path.c_str(), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL,
                      &file_) != MPI_SUCCESS) {
      give_up("MPI_File_open");
    }
    put(g_rank, 'a');
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~Shared() {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_close(&file_);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  const std::string& path() const { return path_; }
  int size() const { return ranks_ * kPiece; }
  std::string written() const { return std::string(static_cast<std::size_t>(size()), 'a'); }
  void put(int piece, char value) {
    const std::string bytes(kPiece, value);
    MPI_File_write_at(file_, MPI_Offset{piece} * kPiece, bytes.data(), kPiece, MPI_CHAR,
                      MPI_STATUS_IGNORE);
  }
  char got(int piece) {
    char value = 0;
    MPI_File_read_at(file_, MPI_Offset{piece} * kPiece, &value, 1, MPI_CHAR, MPI_STATUS_IGNORE);
    return value;
  }

 private:
  std::string path_;
  int ranks_ = 0;
  MPI_File file_{};
};

std::string answer(const std::string& command) {
  FILE* stream = popen(command.c_str(), "r");
  if (stream == nullptr) give_up("popen");
  std::string all;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, stream)) all.append(part, n);
  pclose(stream);
  return all;
}

void run(const std::string& command) {
  if (std::system(command.c_str()) != 0) give_up(command.c_str());
}

std::string content(const std::string& path) {
  std::string bytes;
  const int fd = open(path.c_str(), O_RDONLY);
  char part[4096];
  for (ssize_t n = read(fd, part, sizeof part); n > 0; n = read(fd, part, sizeof part))
    bytes.append(part, static_cast<std::size_t>(n));
  close(fd);
  return bytes;
}

// Runs as the last rank: not the one that made the file.
template <typename Step>
void on_last_rank(const std::string& folder, const char* name, Step&& step) {
  Shared shared(folder + "/" + name);
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (g_rank == ranks - 1) step(shared);
  MPI_Barrier(MPI_COMM_WORLD);
}

bool forked(bool (*child)(const Shared&), const Shared& shared) {
  return checks::forked([&] { return child(shared); });
}

// What `cat` finds when it is started with this file as its input; by `how` it gets it.
std::string catted(const std::string& out, const std::string& file, const char* how) {
  const char* words[] = {"cat", nullptr};
  const int input = open(file.c_str(), O_RDONLY);
  const int output = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = -1;
  if (std::string(how) == "vfork") {
    // Python does so, though POSIX leaves it undefined.
    // NOLINTBEGIN(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
    pid = vfork();
    if (pid == 0) {
      dup2(input, STDIN_FILENO);
      dup2(output, STDOUT_FILENO);
      execv("/bin/cat", const_cast<char**>(words));
      _exit(1);
    }
    // NOLINTEND(clang-analyzer-security.insecureAPI.vfork,clang-analyzer-unix.Vfork)
  } else {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (std::string(how) == "open") {
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, file.c_str(), O_RDONLY, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    }
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (posix_spawn(&pid, "/bin/cat", &actions, nullptr, const_cast<char**>(words), environ) != 0)
      give_up("posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(input);
  close(output);
  return content(out);
}

bool reads_all(const Shared& shared) { return content(shared.path()) == shared.written(); }

bool knows_size(const Shared& shared) {
  struct stat status {};
  return stat(shared.path().c_str(), &status) == 0 && status.st_size == shared.size();
}

bool writes(const Shared& shared) {
  const int fd = open(shared.path().c_str(), O_WRONLY);
  return pwrite(fd, "z", 1, 0) == 1 && close(fd) == 0;
}

// A child that has the file locked; another process must not get the lock.
bool keeps_its_lock(const Shared& shared) {
  const int fd = open(shared.path().c_str(), O_RDWR);
  struct flock range {};
  range.l_type = F_WRLCK;
  struct stat status {};
  if (fcntl(fd, F_SETLK, &range) != 0 || fstat(fd, &status) != 0) return false;
  return forked(
      [](const Shared& same) {
        struct flock wanted {};
        wanted.l_type = F_WRLCK;
        return fcntl(open(same.path().c_str(), O_RDWR), F_SETLK, &wanted) == -1;
      },
      shared);
}

}  // namespace

int main(int argc, char** argv) {
  checks::begin("started", &argc, &argv, 2);
  const std::string folder = argv[1];
  on_last_rank(folder, "size", [](Shared& shared) {
    expect(answer("stat -c %s " + shared.path()) == std::to_string(shared.size()) + "\n", "stat");
    expect(forked(knows_size, shared), "a forked child's stat");
  });
  on_last_rank(folder, "read", [](Shared& shared) {
    expect(answer("cat " + shared.path()) == shared.written(), "cat");
    shared.put(0, 'b');
    expect(answer("head -c 1 " + shared.path()) == "b", "what is written after a program has read");
  });
  on_last_rank(folder, "copied", [&](Shared& shared) {
    run("cp " + shared.path() + " " + folder + "/copy");
    expect(content(folder + "/copy") == shared.written(), "cp");
  });
  on_last_rank(folder, "child", [](Shared& shared) {
    expect(forked(reads_all, shared), "a forked child that opens the file");
  });
  on_last_rank(folder, "written", [](Shared& shared) {
    run("printf y | dd conv=notrunc status=none of=" + shared.path());
    expect(shared.got(0) == 'y', "dd");
  });
  on_last_rank(folder, "childs", [](Shared& shared) {
    expect(forked(writes, shared), "a forked child's write");
    expect(shared.got(0) == 'z', "what a forked child wrote");
  });
  on_last_rank(folder, "locked", [](Shared& shared) {
    expect(forked(keeps_its_lock, shared), "a forked child's lock, after its fstat");
  });
  on_last_rank(folder, "shell", [](Shared& shared) {
    run("echo new > " + shared.path());
    expect(content(shared.path()) == "new\n", "a shell that writes the file anew");
  });
  for (const char* how : {"vfork", "open", "dup"}) {
    on_last_rank(folder, how, [&](Shared& shared) {
      expect(catted(folder + "/catted", shared.path(), how) == shared.written(), how);
    });
  }
  on_last_rank(folder, "output", [](Shared& shared) {
    const int fd = open(shared.path().c_str(), O_WRONLY);
    run("printf x >&" + std::to_string(dup2(fd, 7)));
    close(7);
    close(fd);
    expect(shared.got(0) == 'x', "what a program writes that has the file as its output");
  });
  on_last_rank(folder, "changed", [](Shared& shared) {
    const timespec long_ago[2] = {{1, 0}, {1, 0}};
    utimensat(AT_FDCWD, shared.path().c_str(), long_ago, 0);
    shared.put(0, 'c');
    expect(answer("stat -c %Y " + shared.path()).size() > 3, "when it was changed");
  });
  checks::end();
  return 0;
}
