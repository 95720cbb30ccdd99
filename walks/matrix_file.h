// A matrix in a file, read and written by regions through MPI-IO in one of several patterns.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <string>

#include "header.h"
#include "layout.h"
#include "team.h"

namespace walks {

// How a region's cells travel. The bytes in the file are the same whatever the pattern.
enum class Pattern {
  block,       // one call for each contiguous stretch of the file (whole tiles: one call a tile)
  views,       // a file view of the region, one independent call
  collective,  // a file view of the region, one collective call
  rows,        // one call for each row of the region (of each tile, in a tiled file)
  shift,       // as views; but a product reads each block once and passes it between the ranks
};

// How a matrix just written becomes readable by the other ranks.
enum class Handover {
  sync,    // MPI_File_sync, barrier, MPI_File_sync: the file stays open
  reopen,  // it is closed and opened again
};

class MatrixFile {
 public:
  // Collective. Throws AgreedError.
  static MatrixFile open(Team& team, const std::string& path);

  // Collective. A new file; one of that name is removed first. Its header is written by finish(),
  // so an unfinished file is never taken for a matrix. A scratch file disappears when it is closed.
  static MatrixFile create(Team& team, const std::string& path, const Header& header, bool scratch);

  MatrixFile(MatrixFile&& other) noexcept;
  MatrixFile(const MatrixFile&) = delete;
  MatrixFile& operator=(MatrixFile&&) = delete;
  MatrixFile& operator=(const MatrixFile&) = delete;
  ~MatrixFile();

  [[nodiscard]] const Header& header() const { return header_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(header_.n); }

  // Row-major cells of the region to or from memory. Collective in all patterns but block and
  // rows: every rank calls, with an empty region if it has nothing to do. A rank's error is kept
  // for Team::agree().
  void read(const Region& region, std::byte* cells, Pattern pattern);
  void write(const Region& region, const std::byte* cells, Pattern pattern);

  // Collective: after views, makes the file fit again for Pattern::block and rows.
  void drop_view();

  // Collective: what any rank wrote before, every rank reads after.
  void hand_over(Handover how);

  // What the finished header will say.
  void set_power(std::uint64_t power) { header_.power = power; }
  void set_saturated(bool saturated) { header_.saturated = saturated; }

  // Collective: writes the header and closes. Throws AgreedError.
  void finish();

  // Collective.
  void close();

 private:
  MatrixFile(Team& team, std::string path, Header header);

  void transfer(const Region& region, std::byte* cells, Pattern pattern, bool writing);
  void transfer_extents(const Region& region, std::byte* cells, bool joined, bool writing);
  void transfer_view(const Region& region, std::byte* cells, bool collective, bool writing);
  void transfer_at(std::int64_t cell, std::int64_t cells, std::byte* bytes, bool writing);
  void open_again(int mode);

  Team* team_;
  std::string path_;
  Header header_;
  Layout layout_;
  MPI_File file_ = MPI_FILE_NULL;
  int mode_ = 0;
  bool viewed_ = false;  // a view other than plain bytes is set
};

}  // namespace walks
