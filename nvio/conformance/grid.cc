// A small IOR-like measurement: N ranks touch one shared file in pieces, or each a file of its own,
// and the time from open to the end of close is what counts.
//
//   grid FILE read|write random|sequential|strided PIECE_BYTES FILE_BYTES TOUCHES [each] [sync]
//        [collective] [view]
//
// TOUCHES: how many bytes are touched, in units of the file's size. Random pieces are aligned to
// their size. The file must exist for reads. each: FILE.RANK, every one of FILE_BYTES / ranks.
// sync: MPI_File_sync before close. collective: MPI_File_read_at_all, MPI_File_write_at_all. view:
// strided pieces, 64 of them a call, by a view of a derived type; the file is opened uniquely.
// Prints one JSON line: seconds of the slowest rank for open, work and close, operations, and
// percentiles of one operation in 16, of all ranks, in microseconds.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The samples of all ranks, sorted, at rank 0.
std::vector<double> gathered(const std::vector<double>& own, int rank, int ranks) {
  const int count = static_cast<int>(own.size());
  std::vector<int> counts(static_cast<std::size_t>(ranks));
  MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> places(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  std::vector<double> all(rank == 0 ? static_cast<std::size_t>(places.back()) +
                                          static_cast<std::size_t>(counts.back())
                                    : 0);
  MPI_Gatherv(own.data(), count, MPI_DOUBLE, all.data(), counts.data(), places.data(), MPI_DOUBLE,
              0, MPI_COMM_WORLD);
  std::sort(all.begin(), all.end());
  return all;
}

constexpr long long kPiecesOfView = 64;  // a call

// Shows a rank its pieces of a strided order.
void show(MPI_File file, long long piece, int sharing, int place) {
  MPI_Datatype one{};
  MPI_Datatype mine{};
  MPI_Type_contiguous(static_cast<int>(piece), MPI_BYTE, &one);
  MPI_Type_create_resized(one, 0, piece * sharing, &mine);
  MPI_Type_commit(&mine);
  MPI_File_set_view(file, place * piece, MPI_BYTE, mine, "native", MPI_INFO_NULL);
  MPI_Type_free(&one);
  MPI_Type_free(&mine);
}

// Ends the job where a call failed, and says why.
void must(const char* call, int error) {
  if (error == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, reason, &length);
  std::fprintf(stderr, "grid: cannot %s the file: %s\n", call, reason);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  bool each = false;
  bool sync = false;
  bool collective = false;
  bool view = false;
  bool understood = argc >= 7;
  for (int i = 7; i < argc; ++i) {
    const std::string word = argv[i];
    each |= word == "each";
    sync |= word == "sync";
    collective |= word == "collective";
    view |= word == "view";
    understood &= word == "each" || word == "sync" || word == "collective" || word == "view";
  }
  understood &= !view || std::strcmp(argv[3], "strided") == 0;
  if (!understood) {
    if (rank == 0) {
      std::fprintf(stderr,
                   "usage: %s FILE read|write random|sequential|strided PIECE FILE_BYTES "
                   "TOUCHES [each] [sync] [collective] [view]\n",
                   argv[0]);
    }
    MPI_Finalize();
    return 2;
  }
  const bool reading = std::strcmp(argv[2], "read") == 0;
  const std::string order = argv[3];
  const long long piece = std::atoll(argv[4]);
  const double touches = std::atof(argv[6]);
  const int sharing = each ? 1 : ranks;
  const long long pieces = std::atoll(argv[5]) / (each ? ranks : 1) / piece;
  const long long many = view ? kPiecesOfView : 1;
  const auto operations =
      static_cast<long long>(static_cast<double>(pieces) * touches / sharing) / many;
  const std::string name = each ? std::string(argv[1]) + "." + std::to_string(rank) : argv[1];
  const int place = each ? 0 : rank;
  const int length = static_cast<int>(piece * many);
  std::vector<char> buffer(static_cast<std::size_t>(length), static_cast<char>('a' + rank));
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 17);
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(operations));

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  MPI_File file;
  must("open", MPI_File_open(each ? MPI_COMM_SELF : MPI_COMM_WORLD, name.c_str(),
                             (reading ? MPI_MODE_RDONLY : MPI_MODE_RDWR | MPI_MODE_CREATE) |
                                 (view ? MPI_MODE_UNIQUE_OPEN : 0),
                             MPI_INFO_NULL, &file));
  if (view) show(file, piece, sharing, place);
  const double opened = now();
  for (long long i = 0; i < operations; ++i) {
    long long at = 0;
    if (view) {
      at = i * many % (pieces / sharing);  // of its own
    } else if (order == "random") {
      at = static_cast<long long>(random() % static_cast<std::uint64_t>(pieces));
    } else if (order == "strided") {
      at = (i * sharing + place) % pieces;
    } else {
      at = (place * (pieces / sharing) + i) % pieces;
    }
    const double before = (i & 15) == 0 ? now() : 0;
    const auto read = collective ? MPI_File_read_at_all : MPI_File_read_at;
    const auto write = collective ? MPI_File_write_at_all : MPI_File_write_at;
    if (reading) {
      must("read", read(file, at * piece, buffer.data(), length, MPI_BYTE, MPI_STATUS_IGNORE));
    } else {
      must("write", write(file, at * piece, buffer.data(), length, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    if ((i & 15) == 0) times.push_back(now() - before);
  }
  const double worked = now();
  if (sync) must("sync", MPI_File_sync(file));
  must("close", MPI_File_close(&file));
  const double closed = now();

  double own[4] = {opened - start, worked - opened, closed - worked, closed - start};
  double all[4];
  MPI_Reduce(own, all, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  const std::vector<double> sampled = gathered(times, rank, ranks);
  if (rank == 0) {
    std::printf(
        "{\"open\": %.6f, \"work\": %.6f, \"close\": %.6f, \"total\": %.6f, "
        "\"operations\": %lld, \"bytes\": %lld, \"p50_us\": %.3f, \"p99_us\": %.3f}\n",
        all[0], all[1], all[2], all[3], operations * ranks, operations * ranks * length,
        percentile(sampled, 0.5) * 1e6, percentile(sampled, 0.99) * 1e6);
  }
  MPI_Finalize();
  return 0;
}
