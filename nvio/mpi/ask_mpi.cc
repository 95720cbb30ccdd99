#include "ask_mpi.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "../settings/launcher.h"
#include "functions.h"

namespace nvio {
namespace {

using Clock = std::chrono::steady_clock;

// What the first rank of a node learns, and tells the others.
struct Told {
  std::uint32_t nodes;
  std::uint32_t node;
  char session[256];
};

constexpr int kTag = 32000;  // one that programs hardly use; every MPI has it

// Waits for a message of `source` and takes it; false once the time is up.
bool receive(const MpiFunctions& mpi, int source, char& text, int& sender,
             Clock::time_point until) {
  for (;;) {
    int is_there = 0;
    MPI_Status status;
    if (mpi.iprobe(source, kTag, mpi.comm_world, &is_there, &status) != MPI_SUCCESS) return false;
    if (is_there != 0) {
      sender = status.MPI_SOURCE;
      return mpi.recv(&text, 1, mpi.byte, sender, kTag, mpi.comm_world, &status) == MPI_SUCCESS;
    }
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// MPICH from 4.1 on ends a job in MPI_Finalize of a rank that never received what it was sent. So
// rank 0, which may lack nvio, is sent nothing before it says by the launcher's name service, in
// which nobody else need take part, that it is here.
class Name {
 public:
#ifdef OPEN_MPI
  explicit Name(int /*rank*/) {}
  bool wait_for_first(Clock::time_point /*until*/) const { return true; }
#else
  explicit Name(int rank) : name_("nvio." + std::to_string(rank)) {
    MPI_Comm parent = MPI_COMM_NULL;  // jobs that were spawned share their launcher's names
    mpi_.comm_get_parent(&parent);
    for (std::size_t i = 0; i < kComms.size(); ++i) {
      mpi_.comm_get_errhandler(kComms[i], &handlers_[i]);
      mpi_.comm_set_errhandler(kComms[i], MPI_ERRORS_RETURN);
    }
    is_there_ = parent == MPI_COMM_NULL &&
                mpi_.publish_name(name_.c_str(), MPI_INFO_NULL, "here") == MPI_SUCCESS;
  }
  ~Name() {
    if (is_there_) mpi_.unpublish_name(name_.c_str(), MPI_INFO_NULL, "here");
    for (std::size_t i = 0; i < kComms.size(); ++i) {
      mpi_.comm_set_errhandler(kComms[i], handlers_[i]);
      mpi_.errhandler_free(&handlers_[i]);
    }
  }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;

  // False once the time is up; true at once where the launcher has no such service.
  bool wait_for_first(Clock::time_point until) const {
    char value[MPI_MAX_PORT_NAME] = {};
    while (is_there_ && mpi_.lookup_name("nvio.0", MPI_INFO_NULL, value) != MPI_SUCCESS) {
      if (Clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

 private:
  static constexpr std::array kComms{MPI_COMM_WORLD, MPI_COMM_SELF};  // errors go to either
  const MpiFunctions& mpi_ = mpi_functions();
  std::string name_;
  std::array<MPI_Errhandler, 2> handlers_{};
  bool is_there_ = false;
#endif
};

// Whether every process of the job came here within `patience`; all that come get the same answer.
// One that nvio was not preloaded into never comes, and a collective call would meet its next one.
// So they report to rank 0, which alone decides; should it be the one without nvio, nobody hears of
// it, and all give up. They wait for it twice as long as it waits: MPI_Init lets all ranks go
// together, so that its decision is under way by then.
bool meet(const MpiFunctions& mpi, int rank, int ranks, std::chrono::seconds patience) {
  const auto began = Clock::now();
  char text = 'h';
  int sender = 0;
  const Name name(rank);
  if (rank != 0) {
    if (!name.wait_for_first(began + patience)) return false;
    mpi.send(&text, 1, mpi.byte, 0, kTag, mpi.comm_world);
    return receive(mpi, 0, text, sender, began + 2 * patience) && text == 'y';
  }
  std::vector<int> here;
  while (static_cast<int>(here.size()) < ranks - 1 &&
         receive(mpi, MPI_ANY_SOURCE, text, sender, began + patience)) {
    here.push_back(sender);
  }
  text = static_cast<int>(here.size()) == ranks - 1 ? 'y' : 'n';
  for (const int other : here) mpi.send(&text, 1, mpi.byte, other, kTag, mpi.comm_world);
  return text == 'y';
}

}  // namespace

Asked ask_mpi(const std::string& session, std::chrono::seconds patience, bool quiet) {
  const MpiFunctions& mpi = mpi_functions();
  int ranks = 1;
  mpi.comm_size(mpi.comm_world, &ranks);
  if (ranks == 1) return {true, std::nullopt};
  int rank = 0;
  mpi.comm_rank(mpi.comm_world, &rank);
  if (!meet(mpi, rank, ranks, patience)) {
    const bool is_one_of_a_dozen = (rank & (rank - 1)) == 0;
    if (!quiet && is_one_of_a_dozen) {
      std::fprintf(
          stderr,
          "nvio: not all ranks of this job said within %lld s on which node they are, so it "
          "goes on without the cache: are LD_PRELOAD and NVIO_RENDEZVOUS set for all of "
          "them (Open MPI: mpirun -x LD_PRELOAD -x NVIO_RENDEZVOUS)? Where they only come "
          "late, set NVIO_PATIENCE\n",
          static_cast<long long>(patience.count()));
    }
    return {false, std::nullopt};
  }
  MPI_Comm here;
  mpi.comm_split_type(mpi.comm_world, MPI_COMM_TYPE_SHARED, 0, mpi.info_null, &here);
  int rank_here = 0;
  mpi.comm_rank(here, &rank_here);
  const bool is_first = rank_here == 0;
  MPI_Comm firsts;
  mpi.comm_split(mpi.comm_world, is_first ? 0 : MPI_UNDEFINED, 0, &firsts);
  Told told{};
  constexpr int kSize = sizeof told;
  if (is_first) {
    int nodes = 1;
    int node = 0;
    mpi.comm_size(firsts, &nodes);
    mpi.comm_rank(firsts, &node);
    // Another job of this session may run beside this one, on other machines.
    const std::string name = nodes > 1 && node == 0 ? name_beside_others(session) : session;
    std::strncpy(told.session, name.c_str(), sizeof told.session - 1);
    mpi.bcast(&told, kSize, mpi.byte, 0, firsts);
    told.nodes = static_cast<std::uint32_t>(nodes);
    told.node = static_cast<std::uint32_t>(node);
    mpi.comm_free(&firsts);
  }
  mpi.bcast(&told, kSize, mpi.byte, 0, here);
  mpi.comm_free(&here);
  return {true, JobPlace{told.nodes, told.node, static_cast<std::uint32_t>(ranks), told.session}};
}

}  // namespace nvio
