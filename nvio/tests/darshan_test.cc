// What a Darshan log tells becomes a job; where it does not tell enough, that is said.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "../darshan/job.h"

namespace nvio {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMilli = 1'000'000;
constexpr int kReadWrite = 8 | 1;  // MPI_MODE_RDWR, MPI_MODE_CREATE

// Two ranks open a file together at 1.0 s, write 4 KiB each at 1.2 s, and close at 1.3 s; each of
// these takes 10 ms.
Json a_log() {
  const auto trace = [](int rank, int offset) {
    return Json{{"file", 7},
                {"rank", rank},
                {"host", "node1"},
                {"reads", Json::array()},
                {"writes", Json::array({offset, 4096, 1.2, 1.21})}};
  };
  const Json counters{{"COLL_OPENS", 2},
                      {"INDEP_WRITES", 2},
                      {"MODE", kReadWrite},
                      {"BYTES_WRITTEN", 8192},
                      {"F_OPEN_START_TIMESTAMP", 1.0},
                      {"F_OPEN_END_TIMESTAMP", 1.01},
                      {"F_CLOSE_START_TIMESTAMP", 1.3},
                      {"F_CLOSE_END_TIMESTAMP", 1.31},
                      {"F_META_TIME", 0.04},
                      {"F_WRITE_TIME", 0.02}};
  const Json posix{{"WRITES", 2}};
  const auto pair = [](const Json& first, const Json& second) {
    return Json::array({first, second});
  };
  Json log;
  log["ranks"] = 2;
  log["seconds"] = 2.5;
  log["mounts"] = Json::array({pair("/lustre", "lustre"), pair("/lus", "nfs"), pair("/", "ext4")});
  log["partial"] = {{"POSIX", false}, {"MPI-IO", false}, {"DXT_POSIX", false}};
  log["names"] = Json::array({pair(7, "/lustre/me/data")});
  log["mpiio"].push_back({{"file", 7}, {"rank", kAllRanks}, {"counters", counters}});
  log["posix"].push_back({{"file", 7}, {"rank", kAllRanks}, {"counters", posix}});
  log["streams"] = Json::array();
  log["dxt_posix"] = log["dxt_mpiio"] = pair(trace(0, 0), trace(1, 4096));
  return log;
}

Json& counters_of(Json& log) { return log["mpiio"][0]["counters"]; }

// A rank's call at so many seconds, on both levels.
void add_call(Json& log, std::size_t rank, const char* way, std::uint64_t offset, double at) {
  for (const char* level : {"dxt_posix", "dxt_mpiio"}) {
    for (const Json& word : {Json(offset), Json(4096), Json(at), Json(at + 0.01)}) {
      log[level][rank][way].push_back(word);
    }
  }
  Json& counted = log["posix"][0]["counters"][way == std::string("reads") ? "READS" : "WRITES"];
  counted = (counted.is_null() ? 0 : counted.get<int>()) + 1;
}

JobTrace job(const Json& log) { return job_of(parse_darshan(log.dump())); }

void expect_call(const TraceCall& call, TraceKind kind, std::uint64_t start, std::uint64_t lasted) {
  EXPECT_EQ(call.kind, kind);
  EXPECT_NEAR(static_cast<double>(call.start), static_cast<double>(start), 10);
  EXPECT_NEAR(static_cast<double>(call.duration), static_cast<double>(lasted), 10);
}

TEST(DarshanTest, AModuleThatLackedMemoryIsNamed) {
  for (const std::string module : {"POSIX", "MPI-IO", "DXT_POSIX", "DXT_MPIIO"}) {
    Json log = a_log();
    log["partial"][module] = true;
    EXPECT_NE(job(log).problem.find("memory for " + module), std::string::npos) << module;
  }
}

TEST(DarshanTest, CountersSayWhenWhatIsTracedWasOpenedAndClosed) {
  const JobTrace found = job(a_log());
  ASSERT_EQ(found.problem, "");
  EXPECT_DOUBLE_EQ(found.seconds, 2.5);
  ASSERT_EQ(found.files.size(), 1U);
  EXPECT_EQ(found.files[0].path, "/lustre/me/data");
  EXPECT_EQ(found.files[0].file_system, "lustre");  // neither the root nor /lus
  ASSERT_EQ(found.ranks.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(found.ranks[rank].size(), 3U);
    expect_call(found.ranks[rank][0], TraceKind::open, 0, 10 * kMilli);
    EXPECT_EQ(found.ranks[rank][0].ranks, 2U);
    EXPECT_EQ(found.ranks[rank][0].length, kTraceReads | kTraceWrites);
    expect_call(found.ranks[rank][1], TraceKind::write, 200 * kMilli, 10 * kMilli);
    EXPECT_EQ(found.ranks[rank][1].offset, rank * 4096);
    expect_call(found.ranks[rank][2], TraceKind::close, 300 * kMilli, 10 * kMilli);
  }
}

TEST(DarshanTest, WhatIsReadBeforeItIsWrittenWasThere) {
  Json log = a_log();
  add_call(log, 0, "reads", 1 << 20, 1.22);
  add_call(log, 1, "reads", 0, 1.23);
  EXPECT_EQ(job(log).files[0].size, (1U << 20) + 4096);
}

TEST(DarshanTest, OpensAndClosesDoNotReachIntoCalls) {
  Json log = a_log();
  counters_of(log)["F_OPEN_END_TIMESTAMP"] = 1.205;     // of the last rank; these began before
  counters_of(log)["F_CLOSE_START_TIMESTAMP"] = 1.207;  // of the first rank; these ended later
  const JobTrace found = job(log);
  expect_call(found.ranks[0][0], TraceKind::open, 0, 200 * kMilli);
  expect_call(found.ranks[0][2], TraceKind::close, 210 * kMilli, 100 * kMilli);
}

TEST(DarshanTest, TwoOpeningsArePartedWhereNoCallIs) {
  Json log = a_log();
  counters_of(log)["COLL_OPENS"] = 4;
  counters_of(log)["F_OPEN_END_TIMESTAMP"] = 1.6;  // the second
  counters_of(log)["F_CLOSE_END_TIMESTAMP"] = 1.9;
  add_call(log, 0, "writes", 0, 1.305);  // of a rank that is late for the first close
  add_call(log, 1, "reads", 0, 1.7);
  const JobTrace found = job(log);
  ASSERT_EQ(found.problem, "");
  const TraceKind early[] = {TraceKind::open,  TraceKind::write, TraceKind::write,
                             TraceKind::close, TraceKind::open,  TraceKind::close};
  ASSERT_EQ(found.ranks[0].size(), std::size(early));
  for (std::size_t i = 0; i < std::size(early); ++i) EXPECT_EQ(found.ranks[0][i].kind, early[i]);
  expect_call(found.ranks[0][3], TraceKind::close, 315 * kMilli, 0);
  expect_call(found.ranks[1][3], TraceKind::open, 595 * kMilli, 5 * kMilli);
  expect_call(found.ranks[1][4], TraceKind::read, 700 * kMilli, 10 * kMilli);
}

TEST(DarshanTest, CallsAreCollectiveWhereAllOfTheirKindAre) {
  Json log = a_log();
  counters_of(log)["INDEP_WRITES"] = 0;
  counters_of(log)["COLL_WRITES"] = 2;
  EXPECT_EQ(job(log).ranks[0][1].kind, TraceKind::collective);
  EXPECT_EQ(job(log).ranks[0][1].ranks, 2U);
  counters_of(log)["INDEP_WRITES"] = 1;  // one of three is not, and which is not told
  const JobTrace unknown = job(log);
  EXPECT_EQ(unknown.ranks[0][1].kind, TraceKind::write);
  EXPECT_NE(unknown.assumed.back().find("collective writes"), std::string::npos);
}

TEST(DarshanTest, ClocksAgreeOnWhenCollectiveCallsEnd) {
  Json log = a_log();
  counters_of(log)["INDEP_WRITES"] = 0;
  counters_of(log)["COLL_WRITES"] = 2;
  for (const char* level : {"dxt_posix", "dxt_mpiio"}) {
    log[level][1]["writes"] = Json::array({4096, 4096, 1.203, 1.213});  // began to count 3 ms later
  }
  const JobTrace found = job(log);
  for (const std::size_t rank : {0, 1}) {
    expect_call(found.ranks[rank][1], TraceKind::collective, 200 * kMilli, 10 * kMilli);
    expect_call(found.ranks[rank][2], TraceKind::write, 200 * kMilli, 10 * kMilli);
  }
}

TEST(DarshanTest, OneSyncIsBeforeTheCloseAndMoreAreRefused) {
  Json log = a_log();
  counters_of(log)["SYNCS"] = 2;
  log["posix"][0]["counters"]["FSYNCS"] = 2;
  counters_of(log)["F_WRITE_TIME"] = 0.02 + 2 * 0.03;
  const JobTrace once = job(log);
  ASSERT_EQ(once.problem, "");
  expect_call(once.ranks[1][2], TraceKind::sync, 270 * kMilli, 30 * kMilli);
  add_call(log, 1, "writes", 0, 1.3);  // of a rank that is late for the first one's close
  counters_of(log)["F_WRITE_TIME"] = 0.03;
  const JobTrace late = job(log);
  EXPECT_EQ(late.ranks[1][3].kind, TraceKind::sync);
  EXPECT_EQ(late.ranks[1][4].kind, TraceKind::close);
  counters_of(log)["SYNCS"] = 20;
  EXPECT_NE(job(log).problem.find("synced 10 times"), std::string::npos);
}

TEST(DarshanTest, WhatIsMappedIsToldToTheCache) {
  Json log = a_log();
  log["posix"][0]["counters"]["MMAPS"] = 1;
  EXPECT_EQ(job(log).ranks[0][1].kind, TraceKind::aside);
}

TEST(DarshanTest, ALogThatLacksSomethingIsRefusedInWords) {
  const auto refused = [](const auto& change, const char* why) {
    Json log = a_log();
    change(log);
    EXPECT_NE(job(log).problem.find(why), std::string::npos) << job(log).problem;
  };
  refused([](Json& log) { log["mpiio"] = Json::array(); }, "no MPI-IO call");
  refused([](Json& log) { log["partial"].erase("DXT_POSIX"); }, "DXT_ENABLE_IO_TRACE=1");
  refused([](Json& log) { log["partial"]["DXT_POSIX"] = true; }, "MAX_RECORDS N DXT_POSIX");
  refused([](Json& log) { log["dxt_posix"][1]["host"] = "node2"; }, "several nodes");
  refused([](Json& log) { log["posix"][0]["counters"]["WRITES"] = 3; }, "DXT has 2 of its 3");
  refused([](Json& log) { log["posix"] = log["dxt_posix"] = Json::array(); }, "other calls");
  refused([](Json& log) { counters_of(log)["F_CLOSE_START_TIMESTAMP"] = 0; }, "never closed");
  refused([](Json& log) { counters_of(log)["F_OPEN_END_TIMESTAMP"] = -1; }, "as old as");
  refused([](Json& log) { counters_of(log)["COLL_OPENS"] = 3; }, "did not all open it");
  refused(
      [](Json& log) {
        counters_of(log)["COLL_OPENS"] = 6;
        counters_of(log)["F_OPEN_END_TIMESTAMP"] = 1.305;
      },
      "opened 3 times");
}

TEST(DarshanTest, ASmallPartThatIsNotToldIsLeftAsItWas) {
  Json log = a_log();
  Json other = log["mpiio"][0];
  other["file"] = 8;
  other["counters"]["F_CLOSE_START_TIMESTAMP"] = 0;
  other["counters"]["F_WRITE_TIME"] = 0.001;
  log["mpiio"].push_back(other);
  log["names"].push_back(Json::array({8, "/lustre/me/small"}));
  Json trace = log["dxt_posix"][0];
  trace["file"] = 8;
  trace["writes"] = {0, 64, 1.1, 1.101};
  log["dxt_posix"].push_back(trace);
  const Json one{{"WRITES", 1}};
  log["posix"].push_back({{"file", 8}, {"rank", 0}, {"counters", one}});
  const JobTrace found = job(log);
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.ranks[0].size(), 4U);
  EXPECT_NE(found.assumed.back().find("/lustre/me/small: it is left as it was"), std::string::npos);
}

// Darshan's length of an MPI-IO call is an int.
TEST(DarshanTest, AnMpiIoCallOf2GiBIsNoDamage) {
  Json log = a_log();
  log["dxt_mpiio"][0]["writes"][0] = -1;
  log["dxt_mpiio"][0]["writes"][1] = -2147483648;
  EXPECT_EQ(job(log).problem, "");
  log["dxt_posix"][0]["writes"][1] = -1;
  EXPECT_NE(job(log).problem.find("damaged"), std::string::npos);
}

TEST(DarshanTest, WhatCannotBeIsDamage) {
  for (const auto& wrong : {Json(-1), Json("later"), Json(1e300), Json(nullptr)}) {
    Json log = a_log();
    log["dxt_posix"][0]["writes"][2] = wrong;
    EXPECT_NE(job(log).problem.find("damaged"), std::string::npos);
  }
  EXPECT_NE(job_of(parse_darshan("{\"ranks\": 2")).problem.find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace nvio
