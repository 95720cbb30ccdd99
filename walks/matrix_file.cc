#include "matrix_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace walks {
namespace {

// Of a file that is being made: nobody else has it open.
constexpr int kOurs = MPI_MODE_RDWR | MPI_MODE_UNIQUE_OPEN;
// Contiguous stretches are moved by calls of at most this many bytes: it bounds the staging copy.
constexpr std::int64_t kLongestCall = std::int64_t{64} << 20;

// ROMIO locks what it writes in strides, and keeps the lock when the write fails: other ranks would
// wait for it forever. Closing any descriptor of a file drops all of the process's locks on it.
void release_locks(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
}

class Datatype {
 public:
  Datatype() = default;
  Datatype(const Datatype&) = delete;
  Datatype& operator=(const Datatype&) = delete;
  ~Datatype() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }
  MPI_Datatype* out() { return &type_; }
  MPI_Datatype commit() {
    check(MPI_Type_commit(&type_), "committing a datatype");
    return type_;
  }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// The runs' cells as a datatype, at their places in the file or in the buffer.
void indexed(const std::vector<Run>& runs, std::int64_t Run::*place, std::uint32_t cell,
             Datatype& type) {
  std::vector<int> lengths;
  std::vector<MPI_Aint> places;
  lengths.reserve(runs.size());
  places.reserve(runs.size());
  for (const Run& run : runs) {
    lengths.push_back(static_cast<int>(run.length * cell));
    places.push_back(static_cast<MPI_Aint>(run.*place * cell));
  }
  check(MPI_Type_create_hindexed(static_cast<int>(runs.size()), lengths.data(), places.data(),
                                 MPI_BYTE, type.out()),
        "describing a region");
}

// The region of a row-major matrix: MPI sees the regular pattern and can use it.
void subarray(const Region& region, std::int64_t n, std::uint32_t cell, Datatype& type) {
  const std::array<int, 2> sizes = {static_cast<int>(n), static_cast<int>(n)};
  const std::array<int, 2> parts = {static_cast<int>(region.rows()),
                                    static_cast<int>(region.cols())};
  const std::array<int, 2> starts = {static_cast<int>(region.row0), static_cast<int>(region.col0)};
  Datatype one_cell;
  check(MPI_Type_contiguous(static_cast<int>(cell), MPI_BYTE, one_cell.out()), "describing a cell");
  check(MPI_Type_create_subarray(2, sizes.data(), parts.data(), starts.data(), MPI_ORDER_C,
                                 one_cell.commit(), type.out()),
        "describing a region");
}

}  // namespace

MatrixFile::MatrixFile(Team& team, std::string path, Header header)
    : team_(&team),
      path_(std::move(path)),
      header_(header),
      layout_(static_cast<std::int64_t>(header.n), static_cast<std::int64_t>(header.tile)) {
#ifndef OPEN_MPI
  // ROMIO would not find the file, or open another one: of "ufs:k.wm" the file k.wm.
  if (path_.find(':') != std::string::npos) {
    throw AgreedError("MPICH takes what stands before the colon in " + path_ +
                      " for a kind of file system; name the file without a colon, by a link or "
                      "from within its folder");
  }
#endif
}

MatrixFile::MatrixFile(MatrixFile&& other) noexcept
    : team_(other.team_),
      path_(std::move(other.path_)),
      header_(other.header_),
      layout_(other.layout_),
      file_(std::exchange(other.file_, MPI_FILE_NULL)),
      mode_(other.mode_),
      viewed_(other.viewed_) {}

// Errors leave through agree() on every rank alike, so a destructor may close collectively.
MatrixFile::~MatrixFile() {
  if (file_ != MPI_FILE_NULL) MPI_File_close(&file_);
}

void MatrixFile::open_again(int mode) {
  mode_ = mode;
  viewed_ = false;
  team_->guard(Phase::open, [&] {
    check(MPI_File_open(team_->comm(), path_.c_str(), mode, MPI_INFO_NULL, &file_),
          "cannot open " + path_);
  });
  team_->agree();
}

MatrixFile MatrixFile::open(Team& team, const std::string& path) {
  MatrixFile probe(team, path, Header{});
  probe.open_again(MPI_MODE_RDONLY);
  std::array<std::byte, kHeaderBytes> bytes{};
  Header header;
  team.guard(Phase::read, [&] {
    MPI_Status status;
    check(MPI_File_read_at(probe.file_, 0, bytes.data(), kHeaderBytes, MPI_BYTE, &status),
          "cannot read " + path);
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    MPI_Offset size = 0;
    check(MPI_File_get_size(probe.file_, &size), "cannot read the size of " + path);
    try {
      header = decode(std::span(bytes).first(static_cast<std::size_t>(std::max(got, 0))));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(path + " is not a walks matrix: " + error.what());
    }
    const std::uint64_t wanted = kHeaderBytes + header.n * header.n * header.cell;
    if (static_cast<std::uint64_t>(size) != wanted) {
      throw std::runtime_error(path + " is damaged: its header asks for " + std::to_string(wanted) +
                               " bytes, it has " + std::to_string(size));
    }
  });
  team.agree();
  MatrixFile matrix(team, path, header);
  std::swap(matrix.file_, probe.file_);
  matrix.mode_ = MPI_MODE_RDONLY;
  return matrix;
}

MatrixFile MatrixFile::create(Team& team, const std::string& path, const Header& header,
                              bool scratch) {
  // What an earlier run left there must be neither read nor fetched by a cache.
  if (team.leads()) MPI_File_delete(path.c_str(), MPI_INFO_NULL);
  MPI_Barrier(team.comm());
  MatrixFile matrix(team, path, header);
  matrix.open_again(kOurs | MPI_MODE_CREATE | (scratch ? MPI_MODE_DELETE_ON_CLOSE : 0));
  team.guard(Phase::open, [&] {
    const std::uint64_t bytes = kHeaderBytes + header.n * header.n * header.cell;
    const auto size = static_cast<MPI_Offset>(bytes);
    check(MPI_File_set_size(matrix.file_, size), "cannot make room for " + path);
  });
  team.agree();
  return matrix;
}

void MatrixFile::read(const Region& region, std::byte* cells, Pattern pattern) {
  team_->guard(Phase::read, [&] { transfer(region, cells, pattern, false); });
}

void MatrixFile::write(const Region& region, const std::byte* cells, Pattern pattern) {
  // MPI takes a pointer to writable memory for either direction and does not write through it.
  team_->guard(Phase::write,
               [&] { transfer(region, const_cast<std::byte*>(cells), pattern, true); });
}

void MatrixFile::transfer(const Region& wanted, std::byte* cells, Pattern pattern, bool writing) {
  const Region region = team_->failed() ? Region{} : wanted;
  const auto bytes = static_cast<std::uint64_t>(region.cells()) * header_.cell;
  (writing ? team_->tally().bytes_written : team_->tally().bytes_read) += bytes;
  switch (pattern) {
    case Pattern::block:
      return transfer_extents(region, cells, true, writing);
    case Pattern::rows:
      return transfer_extents(region, cells, false, writing);
    case Pattern::views:
    case Pattern::shift:
      return transfer_view(region, cells, false, writing);
    case Pattern::collective:
      return transfer_view(region, cells, true, writing);
  }
}

void MatrixFile::transfer_at(std::int64_t cell, std::int64_t cells, std::byte* bytes,
                             bool writing) {
  ++(writing ? team_->tally().write_calls : team_->tally().read_calls);
  const MPI_Offset offset = static_cast<MPI_Offset>(kHeaderBytes) + cell * header_.cell;
  const int count = static_cast<int>(cells * header_.cell);
  MPI_Status status;
  if (writing) {
    check(MPI_File_write_at(file_, offset, bytes, count, MPI_BYTE, &status),
          "cannot write " + path_);
  } else {
    check(MPI_File_read_at(file_, offset, bytes, count, MPI_BYTE, &status), "cannot read " + path_);
  }
  int moved = 0;
  MPI_Get_count(&status, MPI_BYTE, &moved);
  if (moved != count) {
    throw std::runtime_error(path_ + ": only " + std::to_string(moved) + " of " +
                             std::to_string(count) + " bytes " + (writing ? "written" : "read") +
                             " at offset " + std::to_string(offset));
  }
}

void MatrixFile::transfer_extents(const Region& region, std::byte* cells, bool joined,
                                  bool writing) {
  if (viewed_) throw std::logic_error(path_ + ": a view is set; offsets would be wrong");
  const std::vector<Run> runs = layout_.runs(region);
  const std::int64_t most = joined ? kLongestCall / header_.cell : 0;
  std::unique_ptr<std::byte[]> staging;
  std::int64_t staging_cells = 0;
  for (const Extent& extent : join(runs, most)) {
    const std::int64_t at = runs[extent.first].file;
    if (extent.in_place) {
      transfer_at(at, extent.cells, cells + runs[extent.first].buffer * header_.cell, writing);
      continue;
    }
    if (extent.cells > staging_cells) {
      staging_cells = extent.cells;
      staging = std::make_unique_for_overwrite<std::byte[]>(
          static_cast<std::size_t>(staging_cells * header_.cell));
    }
    const auto copy_runs = [&] {
      for (std::size_t i = extent.first; i < extent.first + extent.count; ++i) {
        std::byte* const staged = staging.get() + (runs[i].file - at) * header_.cell;
        std::byte* const placed = cells + runs[i].buffer * header_.cell;
        std::memcpy(writing ? staged : placed, writing ? placed : staged,
                    static_cast<std::size_t>(runs[i].length * header_.cell));
      }
    };
    if (writing) copy_runs();
    transfer_at(at, extent.cells, staging.get(), writing);
    if (!writing) copy_runs();
  }
}

// Setting a view is collective, so a rank with an empty region sets one too (plain bytes), as does
// one without memory to describe its own; and no rank may leave before the transfer itself when
// that is collective.
void MatrixFile::transfer_view(const Region& region, std::byte* cells, bool collective,
                               bool writing) {
  Datatype file_type;
  Datatype memory_type;
  MPI_Datatype in_file = MPI_BYTE;
  MPI_Datatype in_memory = MPI_BYTE;
  int count = 0;
  const auto describe = [&] {
    if (region.empty()) return;
    if (layout_.row_major()) {
      subarray(region, n(), header_.cell, file_type);
      in_file = file_type.commit();
      count = static_cast<int>(region.cells() * header_.cell);
    } else {
      const std::vector<Run> runs = layout_.runs(region);
      indexed(runs, &Run::file, header_.cell, file_type);
      indexed(runs, &Run::buffer, header_.cell, memory_type);
      in_memory = memory_type.commit();
      in_file = file_type.commit();
      count = 1;
    }
  };
  std::exception_ptr no_description;
  try {
    describe();
  } catch (...) {
    no_description = std::current_exception();
  }
  ++(writing ? team_->tally().write_calls : team_->tally().read_calls);
  check(MPI_File_set_view(file_, kHeaderBytes, MPI_BYTE, in_file, "native", MPI_INFO_NULL),
        "cannot set a view of " + path_);
  viewed_ = true;
  MPI_Status status{};
  int code = MPI_SUCCESS;
  if (writing) {
    code = collective ? MPI_File_write_at_all(file_, 0, cells, count, in_memory, &status)
                      : MPI_File_write_at(file_, 0, cells, count, in_memory, &status);
  } else {
    code = collective ? MPI_File_read_at_all(file_, 0, cells, count, in_memory, &status)
                      : MPI_File_read_at(file_, 0, cells, count, in_memory, &status);
  }
  if (no_description) std::rethrow_exception(no_description);
  if (code != MPI_SUCCESS) release_locks(path_);
  check(code, (writing ? "cannot write " : "cannot read ") + path_);
  MPI_Count moved = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &moved);
  const std::int64_t wanted = region.cells() * header_.cell;
  if (moved != wanted) {
    throw std::runtime_error(path_ + ": only " + std::to_string(moved) + " of " +
                             std::to_string(wanted) + " bytes " + (writing ? "written" : "read"));
  }
}

void MatrixFile::drop_view() {
  if (!viewed_) return;
  team_->guard(Phase::sync, [&] {
    check(MPI_File_set_view(file_, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL),
          "cannot reset the view of " + path_);
  });
  team_->agree();
  viewed_ = false;
}

void MatrixFile::hand_over(Handover how) {
  if (how == Handover::reopen && (mode_ & MPI_MODE_DELETE_ON_CLOSE) == 0) {
    close();
    open_again(kOurs);
    return;
  }
  // To agree is a barrier too, and one in which a rank whose sync failed is not missed.
  for (int sync = 0; sync < 2; ++sync) {
    team_->guard(Phase::sync, [&] { check(MPI_File_sync(file_), "cannot sync " + path_); });
    team_->agree();
  }
}

void MatrixFile::finish() {
  drop_view();
  team_->guard(Phase::write, [&] {
    if (!team_->leads()) return;
    const auto bytes = encode(header_);
    check(MPI_File_write_at(file_, 0, bytes.data(), kHeaderBytes, MPI_BYTE, MPI_STATUS_IGNORE),
          "cannot write the header of " + path_);
  });
  close();
}

void MatrixFile::close() {
  team_->guard(Phase::close, [&] { check(MPI_File_close(&file_), "cannot close " + path_); });
  team_->agree();
}

}  // namespace walks
