// Random MPI-IO programs: the same seed makes the same program, and each rank writes down all that
// it could observe. Run once with plain MPI and once under nvio, the outputs must be equal.
//
//   histories SEED STEPS FILE OUT    (OUT.RANK is written by each rank)
//
// A program is a list of phases. Within a phase ranks write disjoint bytes or only read; between
// phases they synchronise as MPI asks (sync, barrier, sync), so that every observation is defined.

#include <fcntl.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using Random = std::mt19937_64;
using Bytes = std::vector<unsigned char>;

constexpr MPI_Offset kRegion = 3 << 20;  // the files stay about this large

std::uint64_t digest(const void* data, std::size_t length) {
  std::uint64_t hash = 1469598103934665603ULL;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < length; ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
  return hash;
}

class Program {
 public:
  Program(std::uint64_t seed, std::string path, const std::string& out)
      : shared_(seed), path_(std::move(path)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    own_.seed(seed * 1000003 + static_cast<std::uint64_t>(rank_));
    log_ = std::fopen((out + "." + std::to_string(rank_)).c_str(), "w");
    if (log_ == nullptr) MPI_Abort(MPI_COMM_WORLD, 2);
  }

  ~Program() { std::fclose(log_); }

  void run(int steps) {
    if (rank_ == 0) unlink(path_.c_str());
    MPI_Barrier(MPI_COMM_WORLD);
    open(MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (step_ = 0; step_ < steps; ++step_) {
      using Phase = void (Program::*)();
      static constexpr Phase kPhases[] = {&Program::explicit_writes, &Program::explicit_writes,
                                          &Program::explicit_reads,  &Program::explicit_reads,
                                          &Program::pointer_writes,  &Program::pointer_reads,
                                          &Program::views,           &Program::views,
                                          &Program::collective,      &Program::nonblocking,
                                          &Program::ordered,         &Program::split,
                                          &Program::sizes,           &Program::atomic,
                                          &Program::reopen,          &Program::twice,
                                          &Program::posix,           &Program::errors,
                                          &Program::mixed_pointers,  &Program::large,
                                          &Program::displaced,       &Program::split_communicator,
                                          &Program::shared_pointer};
      const auto pick = draw(shared_, std::size(kPhases));
      (this->*kPhases[pick])();
      settle();
    }
    read_back();
    close();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) observe_file("final");
  }

 private:
  static std::uint64_t draw(Random& random, std::uint64_t below) { return random() % below; }

  void note(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    std::fprintf(log_, "%d ", step_);
    va_list arguments;
    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is set
    std::vfprintf(log_, format, arguments);
    va_end(arguments);
    std::fputc('\n', log_);
  }

  void open(int amode, MPI_Comm comm = MPI_COMM_WORLD) {
    const int error = MPI_File_open(comm, path_.c_str(), amode, MPI_INFO_NULL, &file_);
    if (error != MPI_SUCCESS) {
      note("open %d failed", amode);
      std::fflush(log_);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
    amode_ = amode;
  }

  void close() { note("close %d", MPI_File_close(&file_)); }

  void settle() {
    MPI_File_sync(file_);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file_);
  }

  void reset_view() { MPI_File_set_view(file_, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL); }

  Bytes random_bytes(std::size_t length) {
    Bytes bytes(length);
    for (std::size_t i = 0; i < length; ++i) {
      if (i % 8 == 0) word_ = own_();
      bytes[i] = static_cast<unsigned char>(word_ >> (8 * (i % 8)));
    }
    return bytes;
  }

  std::size_t random_length() {
    static constexpr std::size_t kSizes[] = {1, 7, 64, 512, 4096, 4097, 20000, 65536, 150000};
    return kSizes[draw(shared_, std::size(kSizes))];
  }

  static int error_class(int error) {
    int result = 0;
    MPI_Error_class(error, &result);
    return result;
  }

  void note_read(const char* what, int error, const MPI_Status& status, const Bytes& bytes) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    const auto got = static_cast<std::size_t>(std::max(count, 0));
    note("%s class %d count %d digest %016llx", what, error_class(error), count,
         static_cast<unsigned long long>(digest(bytes.data(), std::min(got, bytes.size()))));
  }

  void note_write(const char* what, int error, const MPI_Status& status) {
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    note("%s class %d count %d", what, error_class(error), count);
  }

  // Pieces of one row of length*ranks bytes each: piece i of this rank never meets another's.
  MPI_Offset piece(MPI_Offset base, std::size_t length, int i, int turn) const {
    const auto slot = static_cast<MPI_Offset>(i) * ranks_ + (rank_ + turn) % ranks_;
    return base + slot * static_cast<MPI_Offset>(length);
  }

  MPI_Offset random_base() { return static_cast<MPI_Offset>(draw(shared_, kRegion)); }

  void explicit_writes() {
    const std::size_t length = random_length();
    const MPI_Offset base = random_base();
    const int pieces = static_cast<int>(1 + draw(shared_, length > 30000 ? 4 : 40));
    const int turn = static_cast<int>(draw(shared_, 8));
    for (int i = 0; i < pieces; ++i) {
      const bool skipped = draw(own_, 3) == 0;
      const Bytes bytes = random_bytes(length);
      if (skipped) continue;
      MPI_Status status;
      const int error = MPI_File_write_at(file_, piece(base, length, i, turn), bytes.data(),
                                          static_cast<int>(length), MPI_BYTE, &status);
      note_write("write_at", error, status);
    }
  }

  void explicit_reads() {
    const std::size_t length = random_length();
    for (int i = 0; i < 20; ++i) {
      Bytes bytes(length);
      MPI_Status status;
      const auto at = static_cast<MPI_Offset>(draw(own_, kRegion * 3 / 2));
      const int error =
          MPI_File_read_at(file_, at, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
      note_read("read_at", error, status, bytes);
    }
  }

  void pointer_writes() {
    const std::size_t length = random_length() / 8 * 8 + 8;
    MPI_File_seek(file_, piece(random_base(), length, 0, 0), MPI_SEEK_SET);
    for (int i = 0; i < 5; ++i) {
      const Bytes bytes = random_bytes(length);
      MPI_Status status;
      int error =
          MPI_File_write(file_, bytes.data(), static_cast<int>(length / 8), MPI_DOUBLE, &status);
      note_write("write", error, status);
      MPI_File_seek(file_, static_cast<MPI_Offset>(length) * (ranks_ - 1), MPI_SEEK_CUR);
      MPI_Offset position = 0;
      error = MPI_File_get_position(file_, &position);
      note("position %d %lld", error, static_cast<long long>(position));
    }
  }

  void pointer_reads() {
    const std::size_t length = random_length();
    MPI_File_seek(file_, -static_cast<MPI_Offset>(draw(own_, 100000)), MPI_SEEK_END);
    MPI_Offset position = 0;
    MPI_File_get_position(file_, &position);
    note("end-relative position %lld", static_cast<long long>(position));
    MPI_File_seek(file_, static_cast<MPI_Offset>(draw(own_, kRegion)), MPI_SEEK_SET);
    for (int i = 0; i < 6; ++i) {
      Bytes bytes(length);
      MPI_Status status;
      const int error =
          MPI_File_read(file_, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
      note_read("read", error, status, bytes);
      MPI_File_get_position(file_, &position);
      note("position %lld", static_cast<long long>(position));
    }
  }

  // The fast and the slow way take turns on one file pointer.
  void mixed_pointers() {
    // ROMIO returns what happened to lie in its buffer for a strided read across the end of file.
    MPI_Offset size = 0;
    MPI_File_get_size(file_, &size);
    if (size < 100000) return;
    MPI_File_seek(file_,
                  static_cast<MPI_Offset>(draw(own_, static_cast<std::uint64_t>(size) - 50000)),
                  MPI_SEEK_SET);
    MPI_Datatype pairs;
    MPI_Type_vector(50, 3, 5, MPI_BYTE, &pairs);
    MPI_Type_commit(&pairs);
    for (int i = 0; i < 4; ++i) {
      Bytes bytes(4096);
      MPI_Status status;
      int error = MPI_File_read(file_, bytes.data(), 1000, MPI_BYTE, &status);
      note_read("plain", error, status, bytes);
      std::fill(bytes.begin(), bytes.end(), 0);
      error = MPI_File_read(file_, bytes.data(), 2, pairs, &status);
      int elements = 0;
      MPI_Get_elements(&status, pairs, &elements);
      note("derived class %d elements %d digest %016llx", error_class(error), elements,
           static_cast<unsigned long long>(digest(bytes.data(), bytes.size())));
    }
    MPI_Type_free(&pairs);
  }

  void views() {
    const int block = static_cast<int>(1 + draw(shared_, 700));
    const int blocks = static_cast<int>(1 + draw(shared_, 60));
    const MPI_Offset displacement = random_base() / 2;
    MPI_Datatype filetype;
    MPI_Type_vector(blocks, block, block * ranks_, MPI_INT, &filetype);
    MPI_Datatype resized;
    MPI_Type_create_resized(filetype, 0, static_cast<MPI_Aint>(blocks) * block * ranks_ * 4,
                            &resized);
    MPI_Type_commit(&resized);
    int error = MPI_File_set_view(file_, displacement + MPI_Offset{rank_} * block * 4, MPI_INT,
                                  resized, "native", MPI_INFO_NULL);
    note("set_view %d", error_class(error));
    const auto length = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(block) * 4;
    const bool collective = draw(shared_, 2) == 0;
    const bool writing = draw(shared_, 2) == 0;
    MPI_Status status;
    if (writing) {
      const Bytes bytes = random_bytes(length);
      const int ints = static_cast<int>(length / 4);
      error = collective ? MPI_File_write_all(file_, bytes.data(), ints, MPI_INT, &status)
                         : MPI_File_write(file_, bytes.data(), ints, MPI_INT, &status);
      note_write(collective ? "view write_all" : "view write", error, status);
      settle();
    }
    Bytes bytes(length);
    const int ints = static_cast<int>(length / 4);
    MPI_Offset size = 0;
    MPI_File_get_size(file_, &size);
    const bool inside = displacement + static_cast<MPI_Offset>(length) * ranks_ <= size;
    if (!inside) {
      MPI_Type_free(&resized);
      MPI_Type_free(&filetype);
      settle();
      reset_view();
      return;
    }
    error = collective ? MPI_File_read_at_all(file_, 0, bytes.data(), ints, MPI_INT, &status)
                       : MPI_File_read_at(file_, 0, bytes.data(), ints, MPI_INT, &status);
    note_read("view read", error, status, bytes);
    MPI_Type_free(&resized);
    MPI_Type_free(&filetype);
    settle();
    reset_view();
  }

  void displaced() {
    const MPI_Offset displacement = random_base() / 4 * 4;
    MPI_File_set_view(file_, displacement, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    const std::size_t length = random_length() / 4 * 4 + 4;
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    int error = MPI_File_write_at(file_, rank_ * static_cast<MPI_Offset>(length / 4), bytes.data(),
                                  static_cast<int>(length / 4), MPI_INT, &status);
    note_write("displaced write_at", error, status);
    settle();
    Bytes back(length);
    error = MPI_File_read_at(file_, (rank_ + 1) % ranks_ * static_cast<MPI_Offset>(length / 4),
                             back.data(), static_cast<int>(length / 4), MPI_INT, &status);
    note_read("displaced read_at", error, status, back);
    MPI_Offset offset = 0;
    MPI_File_get_byte_offset(file_, 5, &offset);
    note("byte offset %lld", static_cast<long long>(offset));
    settle();
    reset_view();
  }

  void collective() {
    const std::size_t length = random_length();
    const MPI_Offset at = piece(random_base(), length, 0, static_cast<int>(draw(shared_, 4)));
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    int error =
        MPI_File_write_at_all(file_, at, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
    note_write("write_at_all", error, status);
    settle();
    // Within the file: across its end, OMPIO counts bytes that it did not read.
    MPI_Offset size = 0;
    MPI_File_get_size(file_, &size);
    Bytes back(length);
    const auto from =
        static_cast<MPI_Offset>(draw(own_, static_cast<std::uint64_t>(size) - length + 1));
    error =
        MPI_File_read_at_all(file_, from, back.data(), static_cast<int>(length), MPI_BYTE, &status);
    note_read("read_at_all", error, status, back);
  }

  void nonblocking() {
    const std::size_t length = random_length();
    const MPI_Offset base = random_base();
    std::vector<Bytes> sources;
    std::vector<MPI_Request> requests(4);
    sources.reserve(4);
    for (int i = 0; i < 4; ++i) sources.push_back(random_bytes(length));
    for (int i = 0; i < 4; ++i) {
      MPI_File_iwrite_at(file_, piece(base, length, i, 0),
                         sources[static_cast<std::size_t>(i)].data(), static_cast<int>(length),
                         MPI_BYTE, &requests[static_cast<std::size_t>(i)]);
    }
    std::vector<MPI_Status> statuses(4);
    note("waitall %d", error_class(MPI_Waitall(4, requests.data(), statuses.data())));
    settle();
    Bytes back(length);
    MPI_Request request;
    MPI_Status status;
    MPI_File_iread_at(file_, piece(base, length, 1, 1), back.data(), static_cast<int>(length),
                      MPI_BYTE, &request);
    const int error = MPI_Wait(&request, &status);
    note_read("iread_at", error, status, back);
  }

  void ordered() {
    MPI_File_seek_shared(file_, random_base(), MPI_SEEK_SET);
    const std::size_t length = random_length() % 30000 + 1 + static_cast<std::size_t>(rank_) * 13;
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    const int error =
        MPI_File_write_ordered(file_, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
    note_write("write_ordered", error, status);
    MPI_Offset position = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_position_shared(file_, &position);
    note("shared position %lld", static_cast<long long>(position));
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void shared_pointer() {
    MPI_File_seek_shared(file_, random_base(), MPI_SEEK_SET);
    MPI_Barrier(MPI_COMM_WORLD);
    // All write the same bytes, so the order, which is open, does not show.
    const Bytes bytes(777, static_cast<unsigned char>(step_));
    MPI_Status status;
    const int error = MPI_File_write_shared(file_, bytes.data(), 777, MPI_BYTE, &status);
    note_write("write_shared", error, status);
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void split() {
    const std::size_t length = random_length();
    const MPI_Offset at = piece(random_base(), length, 0, 0);
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    MPI_File_write_at_all_begin(file_, at, bytes.data(), static_cast<int>(length), MPI_BYTE);
    int error = MPI_File_write_at_all_end(file_, bytes.data(), &status);
    note_write("split write", error, status);
    settle();
    Bytes back(length);
    MPI_File_read_at_all_begin(file_, at, back.data(), static_cast<int>(length), MPI_BYTE);
    error = MPI_File_read_at_all_end(file_, back.data(), &status);
    note_read("split read", error, status, back);
  }

  void sizes() {
    MPI_Offset size = 0;
    MPI_File_get_size(file_, &size);
    note("size %lld", static_cast<long long>(size));
    const MPI_Offset wanted = static_cast<MPI_Offset>(draw(shared_, kRegion * 3 / 2));
    MPI_Barrier(MPI_COMM_WORLD);
    const bool grow = draw(shared_, 4) == 0;
    const int error = grow ? MPI_File_preallocate(file_, std::max(size, wanted))
                           : MPI_File_set_size(file_, wanted);
    note("resize class %d", error_class(error));
    settle();
    MPI_File_get_size(file_, &size);
    note("size %lld", static_cast<long long>(size));
  }

  void atomic() {
    const int error = MPI_File_set_atomicity(file_, 1);
    note("atomic class %d", error_class(error));
    explicit_writes();
    MPI_Barrier(MPI_COMM_WORLD);
    explicit_reads();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_atomicity(file_, 0);
  }

  void reopen() {
    close();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) observe_file("between");
    MPI_Barrier(MPI_COMM_WORLD);
    const auto way = draw(shared_, 4);
    if (way == 0) {
      open(MPI_MODE_RDONLY);
      explicit_reads();
      close();
      MPI_Barrier(MPI_COMM_WORLD);
      open(MPI_MODE_RDWR);
    } else if (way == 1) {
      open(MPI_MODE_WRONLY);
      explicit_writes();
      settle();
      close();
      MPI_Barrier(MPI_COMM_WORLD);
      open(MPI_MODE_RDWR);
    } else if (way == 2) {
      // A descriptor from before the file was opened by MPI.
      const int early = rank_ == 0 ? ::open(path_.c_str(), O_RDWR) : -1;
      open(MPI_MODE_RDWR | MPI_MODE_APPEND);
      explicit_writes();
      settle();
      if (rank_ == 0) {
        const Bytes bytes = random_bytes(3000);
        note("early pwrite %zd", pwrite(early, bytes.data(), bytes.size(), 70000));
        ::close(early);
      }
      settle();
      explicit_reads();
      MPI_Offset position = 0;
      MPI_File_get_position(file_, &position);
      note("append position %lld", static_cast<long long>(position));
    } else {
      if (rank_ == 0) unlink(path_.c_str());
      MPI_Barrier(MPI_COMM_WORLD);
      open(MPI_MODE_CREATE | MPI_MODE_RDWR);
    }
  }

  // The same file through a second handle while the first is open.
  void twice() {
    const MPI_File first = file_;
    open(MPI_MODE_RDWR, draw(shared_, 2) == 0 ? MPI_COMM_SELF : MPI_COMM_WORLD);
    explicit_writes();
    MPI_File_sync(file_);
    MPI_File_sync(first);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(first);
    MPI_File_sync(file_);
    Bytes bytes(10000);
    MPI_Status status;
    const int error = MPI_File_read_at(first, static_cast<MPI_Offset>(draw(own_, kRegion)),
                                       bytes.data(), 10000, MPI_BYTE, &status);
    note_read("other handle", error, status, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    close();
    file_ = first;
  }

  void split_communicator() {
    const MPI_File first = file_;
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank_ % 2, rank_, &half);
    open(MPI_MODE_RDWR, half);
    const std::size_t length = random_length();
    const MPI_Offset at = piece(random_base(), length, 0, 0);
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    const int error =
        MPI_File_write_at_all(file_, at, bytes.data(), static_cast<int>(length), MPI_BYTE, &status);
    note_write("half write", error, status);
    close();
    MPI_Comm_free(&half);
    file_ = first;
  }

  // What another library of the program may do to the file meanwhile.
  void posix() {
    const auto way = draw(shared_, 5);
    const auto cut = static_cast<off_t>(draw(shared_, kRegion));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) {
      if (way == 0) {
        note("truncate %d", truncate(path_.c_str(), cut));
      } else if (way == 1) {
        struct stat status {};
        note("stat %d", stat(path_.c_str(), &status));
        note("st_size %lld", static_cast<long long>(status.st_size));
      } else if (way == 2) {
        observe_file("stdio");
      } else if (way == 3) {
        const int fd = ::open(path_.c_str(), O_RDWR);
        const Bytes bytes = random_bytes(5000);
        note("pwrite %zd", pwrite(fd, bytes.data(), bytes.size(), cut));
        Bytes back(9000);
        const ssize_t got = pread(fd, back.data(), back.size(), cut / 2);
        note("pread %zd %016llx", got,
             static_cast<unsigned long long>(
                 digest(back.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)))));
        note("end %lld", static_cast<long long>(lseek(fd, 0, SEEK_END)));
        ::close(fd);
      } else {
        const int fd = ::open(path_.c_str(), O_RDWR);
        note("ftruncate %d", ftruncate(fd, cut));
        ::close(fd);
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void errors() {
    Bytes bytes(64);
    MPI_Status status;
    note("negative offset class %d",
         error_class(MPI_File_read_at(file_, -5, bytes.data(), 8, MPI_BYTE, &status)));
    note("negative count class %d",
         error_class(MPI_File_write_at(file_, 0, bytes.data(), -1, MPI_BYTE, &status)));
    MPI_File none;
    note("missing class %d", error_class(MPI_File_open(MPI_COMM_SELF, (path_ + ".missing").c_str(),
                                                       MPI_MODE_RDONLY, MPI_INFO_NULL, &none)));
    MPI_Info info;
    MPI_File_get_info(file_, &info);
    MPI_Info_free(&info);
    int amode = 0;
    MPI_File_get_amode(file_, &amode);
    note("amode %d", amode);
    note("zero bytes class %d",
         error_class(MPI_File_read_at(file_, 10, bytes.data(), 0, MPI_BYTE, &status)));
  }

  void large() {
    const std::size_t length = 2'500'000;
    const Bytes bytes = random_bytes(length);
    MPI_Status status;
    if (draw(shared_, 2) == 0 && rank_ == static_cast<int>(draw(own_, 1))) {
      note_write("large write",
                 MPI_File_write_at(file_, 12345, bytes.data(), static_cast<int>(length), MPI_BYTE,
                                   &status),
                 status);
    }
    settle();
    Bytes back(length);
    note_read(
        "large read",
        MPI_File_read_at(file_, 777, back.data(), static_cast<int>(length), MPI_BYTE, &status),
        status, back);
  }

  void read_back() {
    MPI_Offset size = 0;
    MPI_File_get_size(file_, &size);
    Bytes bytes(static_cast<std::size_t>(size) + 100);
    MPI_Status status;
    const int error =
        MPI_File_read_at(file_, 0, bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, &status);
    note_read("whole", error, status, bytes);
  }

  void observe_file(const char* when) {
    std::FILE* file = std::fopen(path_.c_str(), "r");
    Bytes bytes(64 << 20);
    const std::size_t got = file == nullptr ? 0 : std::fread(bytes.data(), 1, bytes.size(), file);
    if (file != nullptr) std::fclose(file);
    note("%s file %zu bytes %016llx", when, got,
         static_cast<unsigned long long>(digest(bytes.data(), got)));
  }

  Random shared_;  // draws the same on all ranks
  Random own_;
  std::uint64_t word_ = 0;
  std::string path_;
  std::FILE* log_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  int step_ = -1;
  int amode_ = 0;
  MPI_File file_{};
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s SEED STEPS FILE OUT\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  {
    Program program(std::strtoull(argv[1], nullptr, 10), argv[3], argv[4]);
    program.run(std::atoi(argv[2]));
  }
  MPI_Finalize();
  return 0;
}
