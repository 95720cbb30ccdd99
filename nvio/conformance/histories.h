// A random MPI-IO program: what its phases have in common, and which there are.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace histories {

using Random = std::mt19937_64;
using Bytes = std::vector<unsigned char>;

constexpr MPI_Offset kRegion = 3 << 20;  // the files stay about this large

std::uint64_t digest(const void* data, std::size_t length);

// One rank of it.
class Program {
 public:
  Program(std::uint64_t seed, std::string path, const std::string& out);
  ~Program() { std::fclose(log_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run(int steps);
  // Of random datatypes alone, trees of at most this depth, each in a view and in memory. Says on
  // standard error where bytes are not where MPI_Pack finds them.
  void run_types(int steps, int depth);

 private:
  static std::uint64_t draw(Random& random, std::uint64_t below) { return random() % below; }
  void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
  void open(int amode, MPI_Comm comm = MPI_COMM_WORLD);
  void close() { note("close %d", MPI_File_close(&file_)); }
  void settle();
  void reset_view() { MPI_File_set_view(file_, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL); }
  Bytes random_bytes(std::size_t length);
  std::size_t random_length();
  static int error_class(int error);
  void note_read(const char* what, int error, const MPI_Status& status, const Bytes& bytes);
  void note_write(const char* what, int error, const MPI_Status& status);
  // Pieces of one row of length*ranks bytes each: piece i of this rank never meets another's.
  MPI_Offset piece(MPI_Offset base, std::size_t length, int i, int turn) const;
  MPI_Offset random_base() { return static_cast<MPI_Offset>(draw(shared_, kRegion)); }
  void read_back();
  void observe_file(const char* when);

  // Bytes go to and fro: histories_transfers.cc.
  void explicit_writes();
  void explicit_reads();
  void pointer_writes();
  void pointer_reads();
  void mixed_pointers();
  void views();
  void displaced();
  void collective();
  void nonblocking();
  void ordered();
  void shared_pointer();
  void split();

  // The file is opened, cut, and touched by others: histories_file.cc.
  void sizes();
  void atomic();
  void reopen();
  void twice();
  void split_communicator();
  void posix();
  void errors();
  void large();

  // Views and buffers of random datatypes: histories_types.cc.
  struct Typed;
  void types();
  void through_view(Typed& typed, bool interleaved);
  void transfer_typed(const Typed& typed, bool writing, bool at, int way, void* buffer,
                      MPI_Status& status);
  void transfer_all_typed(Typed& typed, bool writing);
  void observe_view(const Typed& typed);
  void check_transfer(const Typed& typed, bool writing, const Bytes& buffer);
  void check_image();
  void complain(const char* what, int count) const;

  MPI_File alone_{};                  // of this rank's own, to try views with
  Bytes image_;                       // what the file holds, as this rank knows it
  std::vector<std::size_t> written_;  // offsets of what it has written since
  Random shared_;                     // draws the same on all ranks
  Random own_;
  std::uint64_t word_ = 0;
  std::string path_;
  std::FILE* log_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  int step_ = -1;
  int depth_ = 0;
  MPI_File file_{};
};

}  // namespace histories
