// The neutral preload library: exports every MPI_File_* of every MPI, looks at the first call
// which MPI the process holds, and hands over to the library built for it.
//
// It links nothing but the C library, so that it costs a shell or an mpirun nothing. In a process
// whose MPI it does not know, or whose library is missing, each call goes on to the MPI.

#include "loader.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../settings/first_to_say.h"
#include "../settings/own_stores.h"
#include "../settings/settled_time.h"

// Where this library begins and ends in memory; the names are the linker's.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];
extern "C" __attribute__((visibility("hidden"))) const char _end[];
// NOLINTEND(bugprone-reserved-identifier)

namespace nvio {

const PosixHooks* g_hooks = nullptr;
std::uint8_t g_tracked[kMaxDescriptors];
std::uint64_t g_mapped = 0;
constinit thread_local int g_inside = 0;

namespace {

// Every argument of every MPI_File_* function is an integer, a handle or a pointer, six at most:
// on x86-64 and AArch64 they all travel in integer registers, so one signature forwards any.
// (MPI_File_f2c returns a handle and MPI_File_c2f an int: both fit a register, too.)
using AnyEntry = std::intptr_t (*)(std::intptr_t, std::intptr_t, std::intptr_t, std::intptr_t,
                                   std::intptr_t, std::intptr_t);

#define X(index, name) #name,
constexpr const char* kNames[] = {
#include "entries.inc"
};
#undef X
#define X(index, name) "P" #name,
constexpr const char* kProfilingNames[] = {
#include "entries.inc"
};
#undef X
constexpr std::size_t kEntries = sizeof kNames / sizeof *kNames;

enum Level { kMpi = 0, kPmpi = 1 };
AnyEntry g_entries[2][kEntries];
bool g_bound = false;

// In the words of settings/settings.cc, which complains of any other.
bool is_on(const char* variable) {
  const char* value = getenv(variable);
  if (value == nullptr) return false;
  for (const char* word : {"1", "on", "yes", "true"}) {
    if (std::strcmp(value, word) == 0) return true;
  }
  return false;
}

void say(const char* what, const char* detail) {
  if (!is_on("NVIO_QUIET") && is_first_to_say(what))
    std::fprintf(stderr, "nvio: %s%s\n", what, detail);
}

// The MPI library this process holds, wherever it is in the link order: Python opens it
// RTLD_LOCAL, where RTLD_NEXT does not look.
void* mpi_library() {
  static void* library = nullptr;
  if (library != nullptr) return library;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* found) {
        const char* slash = std::strrchr(object->dlpi_name, '/');
        const char* base = slash != nullptr ? slash + 1 : object->dlpi_name;
        const bool candidate = std::strncmp(base, "libmpi.so", 9) == 0 ||
                               std::strncmp(base, "libmpich", 8) == 0 ||
                               std::strncmp(base, "libmpi_", 7) == 0;
        if (!candidate) return 0;
        void* handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        if (handle == nullptr || dlsym(handle, "PMPI_File_open") == nullptr) return 0;
        *static_cast<void**>(found) = handle;
        return 1;
      },
      &library);
  return library;
}

// By this library's own bounds: dladdr searches all symbols of the library that it finds, and doing
// so for each function was a fifth of a process's first open.
bool is_ours(void* symbol) {
  return symbol >= static_cast<const void*>(__ehdr_start) &&
         symbol < static_cast<const void*>(_end);
}

void* next_symbol(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr || is_ours(symbol)) {
    void* library = mpi_library();
    symbol = library != nullptr ? dlsym(library, name) : nullptr;
  }
  return symbol != nullptr && !is_ours(symbol) ? symbol : nullptr;
}

// "mpich" or "openmpi", by what the library says of itself: file names do not tell (both are
// called libmpi.so somewhere). Null: an MPI that nvio has no library for.
const char* abi_of_process() {
  using VersionFunction = int (*)(char*, int*);
  auto version = reinterpret_cast<VersionFunction>(next_symbol("MPI_Get_library_version"));
  if (version == nullptr) return nullptr;
  static char text[8192 + 1];  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is shorter
  int length = 0;
  if (version(text, &length) != 0) return nullptr;
  if (std::strncmp(text, "Open MPI", 8) == 0) return "openmpi";
  // Intel MPI, MVAPICH and Cray MPICH share MPICH's ABI.
  static constexpr const char* kSameAbi[] = {"MPICH", "Intel", "MVAPICH", "CRAY"};
  for (const char* name : kSameAbi) {
    if (std::strstr(text, name) != nullptr) return "mpich";
  }
  return nullptr;
}

// The library for one MPI, from beside this one. Lazily: it is linked with all that it needs known,
// and a process calls a third of it.
void* open_library(const char* abi) {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&open_library), &here);
  char path[PATH_MAX];
  const char* slash = std::strrchr(here.dli_fname, '/');
  const int folder = slash != nullptr ? static_cast<int>(slash - here.dli_fname) + 1 : 0;
  std::snprintf(path, sizeof path, "%.*slibnvio-%s.so", folder, here.dli_fname, abi);
  return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

FromLoader ours() {
  return {kContractVersion,         &real_posix(), g_tracked, &g_mapped,
          [] { return &g_inside; }, &next_symbol};
}

bool attach(FromLibrary* library) {
  if (is_on("NVIO_DISABLE")) return false;
  const char* abi = abi_of_process();
  if (abi == nullptr) {
    say("this program's MPI is neither MPICH's nor Open MPI's ABI; its I/O goes on without nvio",
        "");
    return false;
  }
  void* handle = open_library(abi);
  if (handle == nullptr) {
    say("cannot open the library for this program's MPI; its I/O goes on without nvio: ",
        dlerror());
    return false;
  }
  auto function = reinterpret_cast<AttachFunction>(dlsym(handle, kAttachSymbol));
  const FromLoader loader = ours();
  if (function == nullptr || !function(&loader, library) || library->version != kContractVersion) {
    say("the library beside libnvio.so is of another version; the program's I/O goes on without "
        "nvio: ",
        abi);
    return false;
  }
  return true;
}

AnyEntry entry(Level level, std::size_t index);

// MPIs before MPI 4 have no functions of large counts, and a program that looks for them at run
// time, as mpi4py's wheel does, finds ours: they stand for those of int counts.
template <Level level, std::size_t plain, int count>
std::intptr_t narrowed(std::intptr_t a, std::intptr_t b, std::intptr_t c, std::intptr_t d,
                       std::intptr_t e, std::intptr_t f) {
  std::intptr_t arguments[] = {a, b, c, d, e, f};
  if constexpr (count >= 0) {
    // The error is the MPI's own, by the file's own handler: MPI_ERR_COUNT.
    if (arguments[count] > INT_MAX) arguments[count] = -1;
  }
  return entry(level, plain)(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                             arguments[5]);
}

void narrow_what_is_missing() {
  auto fill = [](AnyEntry& known, AnyEntry narrowed) {
    if (known == nullptr) known = narrowed;
  };
#define X(index, plain, count)                                \
  fill(g_entries[kMpi][index], narrowed<kMpi, plain, count>); \
  fill(g_entries[kPmpi][index], narrowed<kPmpi, plain, count>);
#include "narrowed.inc"
#undef X
}

// Runs once, at the process's first MPI_File_* call.
void bind_all() {
  FromLibrary library{};
  const bool attached = attach(&library);
  for (std::size_t i = 0; i < kEntries; ++i) {
    void* mpi = attached ? library.mpi[i] : nullptr;
    void* pmpi = attached ? library.pmpi[i] : nullptr;
    if (mpi == nullptr) mpi = next_symbol(kNames[i]);
    if (pmpi == nullptr) pmpi = next_symbol(kProfilingNames[i]);
    g_entries[kMpi][i] = reinterpret_cast<AnyEntry>(mpi);
    g_entries[kPmpi][i] = reinterpret_cast<AnyEntry>(pmpi);
  }
  narrow_what_is_missing();
  if (attached) __atomic_store_n(&g_hooks, library.hooks, __ATOMIC_RELEASE);
  __atomic_store_n(&g_bound, true, __ATOMIC_RELEASE);
}

AnyEntry entry(Level level, std::size_t index) {
  if (!__atomic_load_n(&g_bound, __ATOMIC_ACQUIRE)) {
    // A program that never touches a file ends without ever loading the cache; only on several
    // nodes all must be there from the start.
    const bool is_frame = std::strcmp(kNames[index], "MPI_Finalize") == 0 ||
                          (std::strncmp(kNames[index], "MPI_Init", 8) == 0 &&
                           getenv("NVIO_NODES") == nullptr && getenv("NVIO_RENDEZVOUS") == nullptr);
    if (is_frame) {
      return reinterpret_cast<AnyEntry>(
          next_symbol(level == kMpi ? kNames[index] : kProfilingNames[index]));
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bind_all);
  }
  AnyEntry function = g_entries[level][index];
  if (function == nullptr) {
    // Only a program that asks dlsym for a function its MPI lacks can come here.
    say("this MPI has no ", level == kMpi ? kNames[index] : kProfilingNames[index]);
    constexpr int kErrOther = 16;  // of Open MPI; MPICH's MPI_ERR_INTERN, which says as little
    function = +[](std::intptr_t, std::intptr_t, std::intptr_t, std::intptr_t, std::intptr_t,
                   std::intptr_t) -> std::intptr_t { return kErrOther; };
  }
  return function;
}

// By either library: they differ in MPI-IO.
void watch() {
  const char* known = abi_of_process();
  for (const char* abi : {known, "openmpi", "mpich"}) {
    void* handle = abi != nullptr ? open_library(abi) : nullptr;
    if (handle == nullptr) continue;
    auto function = reinterpret_cast<WatchFunction>(dlsym(handle, kWatchSymbol));
    const FromLoader loader = ours();
    const PosixHooks* hooks = function != nullptr ? function(&loader) : nullptr;
    const PosixHooks* none = nullptr;
    __atomic_compare_exchange_n(&g_hooks, &none, hooks, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return;
  }
}

// nvio's own commands settle what jobs leave: one that joined such a job would wait for itself.
bool is_nvio_itself() { return dlsym(RTLD_DEFAULT, kItselfSymbol) != nullptr; }

// Whether the folder of stores holds one of this user's. Its time tells when to look again.
bool may_be_cached() {
  if (getenv("NVIO_CONFIG") != nullptr) return true;  // may name another folder
  const char* store = getenv("NVIO_STORE");
  if (store == nullptr) store = "/dev/shm";
  struct stat status {};
  if (stat(store, &status) != 0) return false;
  static std::int64_t none_at = -1;
  const std::int64_t changed = settled_time(status);
  if (changed == __atomic_load_n(&none_at, __ATOMIC_RELAXED)) return false;
  bool found = false;
  each_own_store(store, [&found](const char*) { return !(found = true); });
  if (!found && changed != 0) __atomic_store_n(&none_at, changed, __ATOMIC_RELAXED);
  return found;
}

}  // namespace

bool begin_watching() {
  static bool begun = false;
  if (__atomic_load_n(&begun, __ATOMIC_RELAXED) || is_on("NVIO_DISABLE")) return false;
  const int saved = errno;
  const Hooks inside;
  // One of the threads that come together: who waited might hold what opening a library needs.
  if (may_be_cached() && !__atomic_exchange_n(&begun, true, __ATOMIC_RELAXED) && !is_nvio_itself())
    watch();
  errno = saved;
  return __atomic_load_n(&g_hooks, __ATOMIC_ACQUIRE) != nullptr;
}

namespace {

// What a program is started with: a rank may have redirected it to a file that is cached.
__attribute__((constructor)) void look_at_standard_streams() {
  if (!is_watched()) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) Hooks()->opened(fd);
}

}  // namespace
}  // namespace nvio

#define X(index, name)                                                                      \
  extern "C" __attribute__((visibility("default"))) std::intptr_t name(                     \
      std::intptr_t a, std::intptr_t b, std::intptr_t c, std::intptr_t d, std::intptr_t e,  \
      std::intptr_t f) {                                                                    \
    return nvio::entry(nvio::kMpi, index)(a, b, c, d, e, f);                                \
  }                                                                                         \
  extern "C" __attribute__((visibility("default")))                                         \
  std::intptr_t P##name(std::intptr_t a, std::intptr_t b, std::intptr_t c, std::intptr_t d, \
                        std::intptr_t e, std::intptr_t f) {                                 \
    return nvio::entry(nvio::kPmpi, index)(a, b, c, d, e, f);                               \
  }
#include "entries.inc"
#undef X
