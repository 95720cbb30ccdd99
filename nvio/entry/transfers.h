// Reads and writes as the program calls them: what nvio does itself and what it leaves to the MPI.
//
// A collective call can be done by nvio at one rank and by the MPI at another. The rank whose bytes
// nvio has moved joins the others in the MPI's call with nothing to transfer, so nobody waits in
// vain, and no rank has to know what the others decided.
#pragma once

#include <mpi.h>

#include <mutex>
#include <optional>

#include "handles.h"

namespace nvio {

// Does it, and returns its bytes; nothing: the MPI must do all of it.
std::optional<MPI_Offset> serve(const Transfer& transfer, Way way);

// What of a transfer is told in its status.
void tell(MPI_Status* status, MPI_Datatype datatype, MPI_Offset bytes);
// A request of a transfer that is done. `joined` is the MPI's own, where it was joined: then the
// new one is complete when that is.
int make_request(MPI_File fh, MPI_Offset bytes, const MPI_Request* joined, MPI_Request* request);

// For the calls of a split collective pair: what `serve` did is told at the end.
void begin_split(MPI_File fh, MPI_Offset bytes);
std::optional<MPI_Offset> end_split(MPI_File fh);

// The collective call that this thread is in goes on to the MPI's own code, with nothing to
// transfer.
void join(const Transfer& transfer, Way way);
// The same with all of it. Null when nvio neither serves nor records this file.
Shown* begin_passed(MPI_File fh);
// And the MPI's individual file pointer is brought to where the program believes it is.
void settle(MPI_File fh);
MPI_Datatype byte_type();

// While one lives, the MPI does a transfer. If that moves the individual file pointer, other
// threads that use it wait.
class Passed {
 public:
  Passed(const Transfer& transfer, Way way);
  // With what the call returned. The file pointer stays known.
  int ended(int result);

 private:
  Shown* shown_;
  std::optional<MPI_Offset> after_;  // where the pointer will be; nothing: ask the MPI
  std::unique_lock<std::recursive_mutex> pointer_;
};

// What the generated shims call: `next` is the program's call, `with_none` the same of no bytes.

template <typename Next>
int pass_on(const Transfer& asked, Way way, Next&& next) {
  Passed passed(asked, way);
  return passed.ended(next());
}

template <typename Next, typename None>
int transfer_blocking(const Transfer& asked, Way way, MPI_Status* status, Next&& next,
                      None&& with_none) {
  const auto done = serve(asked, way);
  if (!done) return pass_on(asked, way, next);
  int result = MPI_SUCCESS;
  if (way == Way::together) {
    join(asked, way);
    result = with_none();
  }
  tell(status, asked.datatype, *done);
  return result;
}

template <typename Next, typename None>
int transfer_later(const Transfer& asked, Way way, MPI_Request* request, Next&& next,
                   None&& with_none) {
  const auto done = serve(asked, way);
  if (!done) return pass_on(asked, way, next);
  if (way == Way::later) return make_request(asked.fh, *done, nullptr, request);
  join(asked, way);
  MPI_Request joined{};
  const int result = with_none(&joined);
  return result != MPI_SUCCESS ? result : make_request(asked.fh, *done, &joined, request);
}

template <typename Next, typename None>
int transfer_begin(const Transfer& asked, Next&& next, None&& with_none) {
  const auto done = serve(asked, Way::together);
  if (!done) return pass_on(asked, Way::together, next);
  begin_split(asked.fh, *done);
  join(asked, Way::together);
  return with_none();
}

template <typename Next>
int transfer_end(MPI_File fh, MPI_Status* status, Next&& next) {
  const auto done = end_split(fh);
  if (!done) settle(fh);
  const int result = next();
  if (done) tell(status, byte_type(), *done);
  return result;
}

}  // namespace nvio
