// One of two jobs that write disjoint bytes of one file at the same time: a random program, the
// same for the same seed.
//
//   neighbours SEED JOB STEPS FILE OUT
//
// The seed deals the file out: each extent belongs to a rank of a job, or is a gap that neither may
// touch. Rank 0 writes the deal to OUT.deal (lines "offset length job rank", job 2: a gap), each
// rank what its extents hold at the end to OUT.JOB.RANK, one after the other. Ranks read their own
// bytes back all the time. Prints "neighbours: 0 differences" when those were right.
//
// An odd seed's programs write through views, whose pieces ROMIO brings home by reading, changing
// and writing windows, under locks; since others' writes take none, these programs write by views
// alone, by two pieces or more.

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "checks.h"

namespace {

using checks::expect;
using checks::g_rank;
using checks::give_up;
using Random = std::mt19937_64;
using Bytes = std::vector<char>;
using std::string;

constexpr int kJobs = 2;
constexpr MPI_Offset kFileSize = 3 << 19;  // 1.5 MiB: two that nvio locks and deals out

struct Extent {
  MPI_Offset offset;
  int length;
  int job, rank;
  Bytes bytes;  // as they were written; zeros before
};

std::vector<Extent> deal(Random& random, int ranks) {
  static constexpr int kMost[] = {16, 700, 4096, 9000};
  std::vector<Extent> all;
  const bool by_pages = random() % 4 == 0;
  const int most = kMost[1 + random() % 3];
  for (MPI_Offset at = 0; at < kFileSize;) {
    int length = 1 + static_cast<int>(random() % static_cast<unsigned>(random() % 5 ? most : 16));
    if (by_pages) length = 4096;
    length = static_cast<int>(std::min<MPI_Offset>(length, kFileSize - at));
    all.push_back({at, length, static_cast<int>(random() % (kJobs + 1)),
                   static_cast<int>(random() % static_cast<unsigned>(ranks)), Bytes()});
    at += length;
  }
  return all;
}

class Program {
 public:
  Program(std::uint64_t seed, int job, string path) : path_(std::move(path)), shared_(seed) {
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    all_ = deal(shared_, ranks);
    for (Extent& extent : all_) {
      if (extent.job != job || extent.rank != g_rank) continue;
      extent.bytes.resize(static_cast<std::size_t>(extent.length));
      own_.push_back(&extent);
    }
    own_random_.seed(seed * 1000003 + static_cast<std::uint64_t>(job * ranks + g_rank));
    shared_.seed(seed * kJobs + static_cast<std::uint64_t>(job));  // the jobs do not go in step
    by_views_ = seed % 2 == 1;
  }

  void run(int steps) {
    open();
    write_all();
    for (int step = 0; step < steps; ++step) {
      const auto pick = shared_() % 10;
      if (pick == 0) {
        MPI_File_close(&file_);
        MPI_Barrier(MPI_COMM_WORLD);
        open();
        read_some();
      } else if (pick == 1) {
        MPI_File_sync(file_);
      } else if (pick < 5) {
        read_some();
      } else {
        write_some();
      }
    }
    read_some();
    MPI_File_close(&file_);
  }

  void tell(const string& out, int job) const {
    std::FILE* file =
        std::fopen((out + "." + std::to_string(job) + "." + std::to_string(g_rank)).c_str(), "w");
    if (file == nullptr) give_up(out.c_str());
    for (const Extent* extent : own_) {
      std::fwrite(extent->bytes.data(), 1, extent->bytes.size(), file);
    }
    std::fclose(file);
    if (g_rank != 0 || job != 0) return;
    file = std::fopen((out + ".deal").c_str(), "w");
    if (file == nullptr) give_up(out.c_str());
    for (const Extent& extent : all_) {
      std::fprintf(file, "%lld %d %d %d\n", static_cast<long long>(extent.offset), extent.length,
                   extent.job, extent.rank);
    }
    std::fclose(file);
  }

 private:
  std::uint64_t draw(std::uint64_t below) { return own_random_() % below; }

  void open() {
    if (MPI_File_open(MPI_COMM_WORLD, path_.c_str(), MPI_MODE_RDWR, MPI_INFO_NULL, &file_) !=
        MPI_SUCCESS) {
      give_up(path_.c_str());
    }
  }

  void fill(Extent& extent, std::size_t from, std::size_t length) {
    for (std::size_t i = from; i < from + length; ++i) {
      extent.bytes[i] = static_cast<char>(1 + draw(255));
    }
  }

  // A view is written in ascending order, as far as the program's memory goes.
  void write_view(std::size_t from, std::size_t count) {
    std::vector<int> lengths;
    std::vector<MPI_Aint> offsets;
    Bytes bytes;
    for (std::size_t i = from; i < from + count; ++i) {
      fill(*own_[i], 0, own_[i]->bytes.size());
      lengths.push_back(own_[i]->length);
      offsets.push_back(own_[i]->offset);
      bytes.insert(bytes.end(), own_[i]->bytes.begin(), own_[i]->bytes.end());
    }
    MPI_Datatype pieces = MPI_DATATYPE_NULL;
    MPI_Type_create_hindexed(static_cast<int>(count), lengths.data(), offsets.data(), MPI_BYTE,
                             &pieces);
    MPI_Type_commit(&pieces);
    MPI_File_set_view(file_, 0, MPI_BYTE, pieces, "native", MPI_INFO_NULL);
    const int error = MPI_File_write_at(file_, 0, bytes.data(), static_cast<int>(bytes.size()),
                                        MPI_BYTE, MPI_STATUS_IGNORE);
    expect(error == MPI_SUCCESS, "a write through a view");
    MPI_File_set_view(file_, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_Type_free(&pieces);
  }

  void write_piece(Extent& extent) {
    const std::size_t from = draw(extent.bytes.size());
    const std::size_t length = 1 + draw(extent.bytes.size() - from);
    fill(extent, from, length);
    const MPI_Offset at = extent.offset + static_cast<MPI_Offset>(from);
    const int count = static_cast<int>(length);
    const auto way = draw(4);
    int error = MPI_SUCCESS;
    if (way == 0) {
      MPI_File_seek(file_, at, MPI_SEEK_SET);
      error = MPI_File_write(file_, &extent.bytes[from], count, MPI_BYTE, MPI_STATUS_IGNORE);
    } else if (way == 1) {
      std::vector<MPI_Request> requests(1);
      MPI_File_iwrite_at(file_, at, &extent.bytes[from], count, MPI_BYTE, requests.data());
      error = MPI_Waitall(1, requests.data(), MPI_STATUSES_IGNORE);
    } else {
      error = MPI_File_write_at(file_, at, &extent.bytes[from], count, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    expect(error == MPI_SUCCESS, "a write of a piece");
  }

  void write_all() {
    if (by_views_) {
      write_view(0, own_.size());
      return;
    }
    std::vector<Extent*> order = own_;
    std::shuffle(order.begin(), order.end(), own_random_);
    for (Extent* extent : order) {
      fill(*extent, 0, extent->bytes.size());
      MPI_File_write_at(file_, extent->offset, extent->bytes.data(), extent->length, MPI_BYTE,
                        MPI_STATUS_IGNORE);
    }
  }

  // All ranks of the job come here together: setting a view is collective.
  void write_some() {
    if (by_views_) {
      const std::size_t from = draw(own_.size() - 1);
      write_view(from, 2 + draw(own_.size() - from - 1));
      return;
    }
    for (int i = 0; i < 40; ++i) write_piece(*own_[draw(own_.size())]);
  }

  void read_some() {
    for (int i = 0; i < 40; ++i) {
      const Extent& extent = *own_[draw(own_.size())];
      Bytes bytes(extent.bytes.size());
      MPI_File_read_at(file_, extent.offset, bytes.data(), extent.length, MPI_BYTE,
                       MPI_STATUS_IGNORE);
      expect(bytes == extent.bytes, "own bytes, read back");
    }
  }

  string path_;
  Random shared_, own_random_;
  bool by_views_ = false;
  std::vector<Extent> all_;
  std::vector<Extent*> own_;
  MPI_File file_ = MPI_FILE_NULL;
};

}  // namespace

int main(int argc, char** argv) {
  checks::begin("neighbours", &argc, &argv, 6);
  const int job = std::atoi(argv[2]);
  Program program(std::strtoull(argv[1], nullptr, 10), job, argv[4]);
  program.run(std::atoi(argv[3]));
  program.tell(argv[5], job);
  checks::end();
  return 0;
}
