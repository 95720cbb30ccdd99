// Phases in which bytes go to and fro.
#include <algorithm>
#include <vector>

#include "histories.h"

namespace histories {

void Program::explicit_writes() {
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

void Program::explicit_reads() {
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

void Program::pointer_writes() {
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

void Program::pointer_reads() {
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
void Program::mixed_pointers() {
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

void Program::views() {
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

void Program::displaced() {
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

void Program::collective() {
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

void Program::nonblocking() {
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

void Program::ordered() {
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

void Program::shared_pointer() {
  MPI_File_seek_shared(file_, random_base(), MPI_SEEK_SET);
  MPI_Barrier(MPI_COMM_WORLD);
  // All write the same bytes, so the order, which is open, does not show.
  const Bytes bytes(777, static_cast<unsigned char>(step_));
  MPI_Status status;
  const int error = MPI_File_write_shared(file_, bytes.data(), 777, MPI_BYTE, &status);
  note_write("write_shared", error, status);
  MPI_Barrier(MPI_COMM_WORLD);
}

void Program::split() {
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

}  // namespace histories
