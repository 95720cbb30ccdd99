// The model on traces whose answers can be had by hand.
#include "../predict/replay.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../predict/advice.h"
#include "../record/trace_writer.h"
#include "../store/segment.h"
#include "../store/store_folder.h"
#include "../system/real.h"

namespace nvio {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMilli = 1'000'000;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kPiece = 4096;
constexpr double kNear = 1e-9;

constexpr double kPieceOfView = 1e-5;

Range always(double seconds) { return {seconds, seconds, seconds}; }

// Everything costs what it says, however long and however many: reads 10 ms, of bytes that are
// new 30 ms, writes 20 ms, bytes in the store nothing, but 10 us for each piece of a view.
Calibration a_calibration() {
  Calibration calibration;
  calibration.file_system = "ext4 /dev/sdb1";
  calibration.points = {{Way::read, kPiece, 1, always(0.010)},
                        {Way::write, kPiece, 1, always(0.020)},
                        {Way::cached_read, kPiece, 1, always(0)},
                        {Way::cached_write, kPiece, 1, always(0)},
                        {Way::fresh_read, kPiece, 1, always(0.030)},
                        {Way::cached_new, kPiece, 1, always(0)},
                        {Way::piece_read, kPiece, 1, always(kPieceOfView)},
                        {Way::piece_write, kPiece, 1, always(kPieceOfView)}};
  calibration.close = always(0);
  return calibration;
}

class ReplayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nvio-replay-XXXXXX";
    settings_.store = mkdtemp(name);
    settings_.capacity = 16 * kMiB;
    job_.files = {{"/scratch/data", "ext4 /dev/sdb1", 64 * kMiB}};
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(settings_.store));  // a replay leaves nothing
    fs::remove_all(settings_.store);
  }

  // One rank: opens in 1 ms, makes calls of 5 ms each 1 ms apart, and closes in 2 ms.
  void add_rank(TraceKind kind, const std::vector<std::uint64_t>& offsets, std::uint32_t ranks = 1,
                std::uint64_t length = kPiece) {
    std::vector<TraceCall> calls;
    std::uint64_t at = 0;
    const std::uint64_t flags = kTraceReads | kTraceWrites;
    calls.push_back({TraceKind::open, 0, 0, ranks, 0, flags, at, kMilli});
    at += kMilli;
    for (const std::uint64_t offset : offsets) {
      at += kMilli;
      calls.push_back({kind, 0, 0, 0, offset, length, at, 5 * kMilli});
      at += 5 * kMilli;
    }
    calls.push_back({TraceKind::close, 0, 0, ranks, 0, flags, at, 2 * kMilli});
    job_.ranks.push_back(std::move(calls));
    job_.seconds = recorded_seconds(job_) + 0.1;
  }

  Replayed run() const {
    const Calibration calibration = a_calibration();
    return replay(job_, Costs(calibration, Case::median), settings_);
  }

  Settings settings_;
  JobTrace job_;
};

TEST_F(ReplayTest, WhatIsPassedOnTakesWhatItTook) {
  settings_.file.admit = Admit::never;
  add_rank(TraceKind::read, {0, 8 * kMiB, 16 * kMiB});
  EXPECT_NEAR(recorded_seconds(job_), 0.001 + 3 * 0.006 + 0.002, kNear);
  EXPECT_NEAR(run().seconds, recorded_seconds(job_), kNear);
}

TEST_F(ReplayTest, WhatIsFetchedOnceIsServedAfterwards) {
  settings_.file.admit = Admit::always;
  add_rank(TraceKind::read, {0, 0, 0, 0});
  const Replayed found = run();
  // One fetch of 10 ms, four times 1 ms of computing, an open and no close to speak of: nothing was
  // written plainly.
  EXPECT_NEAR(found.seconds, 0.001 + 4 * 0.001 + 0.010 + 0.002, kNear);
  EXPECT_EQ(found.read_hits, 3U);
}

TEST_F(ReplayTest, WritesInOneMiBAreWrittenBackAsOneRunAtClose) {
  settings_.file.admit = Admit::always;
  add_rank(TraceKind::write, {0, kPiece, 2 * kPiece, 3 * kPiece});
  const Replayed found = run();
  EXPECT_EQ(found.writes_cached, 4U);
  EXPECT_EQ(found.written_back_bytes, 4 * kPiece);
  EXPECT_NEAR(found.seconds, 0.001 + 4 * 0.001 + 0.020, kNear);
}

TEST_F(ReplayTest, AdmissionIsTheCachesOwn) {
  // Calls of 5 ms are slow: after the eight that are timed first, writes go to the store.
  std::vector<std::uint64_t> offsets;
  constexpr std::uint64_t kCalls = 100;
  for (std::uint64_t i = 0; i < kCalls; ++i) offsets.push_back(i * kPiece);
  add_rank(TraceKind::write, offsets);
  const Replayed found = run();
  EXPECT_EQ(found.writes, kCalls);
  EXPECT_EQ(found.writes_cached, kCalls - 8);
  EXPECT_LT(found.seconds, recorded_seconds(job_) / 2);
}

TEST_F(ReplayTest, RanksWaitForEachOtherAtCloseOnly) {
  settings_.file.admit = Admit::never;
  add_rank(TraceKind::read, {0}, 2);
  add_rank(TraceKind::read, {kMiB, 2 * kMiB, 3 * kMiB}, 2);
  // The first rank's close lasted from its own arrival to the other's end.
  TraceCall& early = job_.ranks[0].back();
  const TraceCall& late = job_.ranks[1].back();
  early.duration = late.start + late.duration - early.start;
  EXPECT_NEAR(run().seconds, recorded_seconds(job_), kNear);
}

TEST_F(ReplayTest, RanksShareInWritingBackAsTheyArrive) {
  EXPECT_DOUBLE_EQ(shared_end({0}, 6), 6);
  EXPECT_DOUBLE_EQ(shared_end({0, 0}, 6), 3);
  EXPECT_DOUBLE_EQ(shared_end({0, 2}, 6), 4);  // two alone, then two times two
  EXPECT_DOUBLE_EQ(shared_end({0, 9}, 6), 9);  // done before the second one comes
  EXPECT_DOUBLE_EQ(shared_end({5, 0, 0}, 8), 5);
}

TEST_F(ReplayTest, CollectiveCallsKeepTheirExchange) {
  settings_.file.admit = Admit::never;
  // Both ranks: a collective call of 10 ms, of which the one that transfers spends 4 ms in a write.
  for (const bool transfers : {true, false}) {
    std::vector<TraceCall> calls;
    calls.push_back({TraceKind::open, 0, 0, 2, 0, kTraceWrites, 0, kMilli});
    calls.push_back({TraceKind::collective, 0, 0, 2, 0, 0, 2 * kMilli, 10 * kMilli});
    if (transfers) calls.push_back({TraceKind::write, 0, 0, 0, 0, kPiece, 5 * kMilli, 4 * kMilli});
    calls.push_back({TraceKind::close, 0, 0, 2, 0, kTraceWrites, 13 * kMilli, kMilli});
    job_.ranks.push_back(calls);
  }
  EXPECT_NEAR(run().seconds, 0.014, kNear);
}

TEST_F(ReplayTest, WhatTheCacheServesOfAViewTheMpiDoesNotDo) {
  // A rank writes 8 pieces of 512 bytes by one call, which took the MPI a window read and written.
  job_.views = {*View::of({{{0, 512}}, 2048}, 0)};
  std::vector<TraceCall> calls;
  calls.push_back({TraceKind::open, 0, 0, 1, 0, kTraceReads | kTraceWrites, 0, kMilli});
  calls.push_back({TraceKind::write_view, 0, 0, 0, 0, 8 * 512UL, 2 * kMilli, 10 * kMilli});
  calls.push_back({TraceKind::read, 0, 0, 0, 0, 4 * kPiece, 3 * kMilli, 4 * kMilli});
  calls.push_back({TraceKind::write, 0, 0, 0, 0, 4 * kPiece, 7 * kMilli, 4 * kMilli});
  calls.push_back({TraceKind::close, 0, 0, 1, 0, kTraceReads | kTraceWrites, 13 * kMilli, kMilli});
  job_.ranks = {calls};

  settings_.file.admit = Admit::never;
  EXPECT_NEAR(run().seconds, 0.014, kNear) << "nothing is cached: as it was";

  settings_.file.admit = Admit::always;
  const Replayed cached = run();
  EXPECT_EQ(cached.writes, 8U);
  EXPECT_EQ(cached.writes_cached, 8U);
  EXPECT_EQ(cached.reads, 0U) << "there is no window";
  // The open, a millisecond before and after, the pieces, and writing each back, in a close that
  // has nothing else to do.
  EXPECT_NEAR(cached.seconds, 0.003 + 8 * kPieceOfView + 8 * 0.020, kNear);
}

TEST_F(ReplayTest, RanksThatAreServedByTheCacheStillMeet) {
  settings_.file.admit = Admit::always;
  job_.views = {*View::of({{{0, 512}}, 2048}, 0), *View::of({{{0, 512}}, 2048}, 1024)};
  // The call of 10 ms in which the first rank spent 4 ms in a write for both.
  for (const std::uint32_t rank : {0U, 1U}) {
    std::vector<TraceCall> calls;
    calls.push_back({TraceKind::open, 0, 0, 2, 0, kTraceWrites, 0, kMilli});
    calls.push_back({TraceKind::collective, 0, 0, 2, 0, 0, 2 * kMilli, 10 * kMilli});
    calls.push_back({TraceKind::write_view, 0, 0, rank, 0, 8 * 512UL, 2 * kMilli, 10 * kMilli});
    if (rank == 0) calls.push_back({TraceKind::write, 0, 0, 0, 0, kPiece, 5 * kMilli, 4 * kMilli});
    calls.push_back({TraceKind::close, 0, 0, 2, 0, kTraceWrites, 13 * kMilli, kMilli});
    job_.ranks.push_back(calls);
  }
  // The pieces, the exchange, and each rank writing back half of them.
  EXPECT_NEAR(run().seconds, 0.003 + 8 * kPieceOfView + 0.006 + 8 * 0.020, kNear);
}

TEST_F(ReplayTest, HandlesThatDoNotMatchEndTheReplayAllTheSame) {
  add_rank(TraceKind::read, {0}, 2);
  add_rank(TraceKind::read, {0, kMiB}, 1);
  EXPECT_GT(run().seconds, 0);
}

TEST_F(ReplayTest, AdviceSaysWhatToDoAndWhy) {
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 1000; ++i) offsets.push_back(i * 7919 % 512 * kPiece);
  add_rank(TraceKind::write, offsets);
  Calibration calibration = a_calibration();
  calibration.points[1].seconds = {0.004, 0.005, 0.006};  // writes, as the trace has them
  const Prediction found = predict(job_, calibration, settings_);
  ASSERT_EQ(found.problem, "");
  EXPECT_EQ(found.verdict, Verdict::use);
  EXPECT_NE(found.advice.find("use the cache"), std::string::npos);
  EXPECT_LE(found.cached.low, found.cached.median);
  EXPECT_LE(found.cached.median, found.cached.high);
  EXPECT_NEAR(found.plain - found.plain_io, found.cached.median - found.cached_io.median, kNear);
}

// Which the cache counts by the 64 KiB.
TEST_F(ReplayTest, TheShareOfCallsThatAreServedIsOfCalls) {
  constexpr std::uint64_t kLength = 256 << 10;
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 40; ++i) offsets.push_back(i * kLength);
  settings_.file.admit = Admit::always;
  add_rank(TraceKind::write, offsets, 1, kLength);
  job_.files.push_back({"/scratch/mapped", "ext4 /dev/sdb1", kMiB});
  auto& calls = job_.ranks[0];
  // As many on a file that no MPI-IO call has opened.
  for (std::uint64_t i = 0; i < 40; ++i) {
    calls.insert(calls.end() - 1,
                 {TraceKind::write, 0, 1, 0, i * kPiece, kPiece, calls.back().start, 1});
  }
  const Replayed found = run();
  EXPECT_EQ(found.writes_cached, 160U);
  EXPECT_EQ(found.calls, 80U);
  EXPECT_EQ(found.calls_served, 40U);
  const Prediction prediction = predict(job_, a_calibration(), settings_);
  EXPECT_EQ(prediction.problem, "");
  EXPECT_NE(prediction.advice.find(" 50 % of its calls"), std::string::npos) << prediction.advice;
}

TEST_F(ReplayTest, AFileBeyondThisProcesssLimitIsReplayedAllTheSame) {
  add_rank(TraceKind::write, {0, kMiB, 63 * kMiB, 64 * kMiB});
  const double seconds = run().seconds;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{48 * kMiB, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Replayed found = run();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(found.problem, "");
  EXPECT_DOUBLE_EQ(found.seconds, seconds);
}

TEST_F(ReplayTest, TheStoreOfAKilledOneDoesNotNameTheJobsFile) {
  add_rank(TraceKind::write, {0});
  const pid_t child = fork();
  if (child == 0) {
    RealPosix deadly = real();
    deadly.dup = [](int) { return raise(SIGKILL); };  // by which the cache takes a file
    set_real(&deadly);
    run();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::string left = fs::directory_iterator(settings_.store)->path();
  std::string why;
  const auto segment = Segment::open_existing(StoreFolder(left), why);
  ASSERT_NE(segment, nullptr) << why;
  EXPECT_EQ(segment->file(0).opened_path(), "replay of /scratch/data");
  fs::remove_all(left);
}

TEST_F(ReplayTest, LongTransfersMakeNoDifference) {
  add_rank(TraceKind::write, {0, kMiB, 2 * kMiB, 3 * kMiB}, 1, kMiB);
  const Prediction found = predict(job_, a_calibration(), settings_);
  EXPECT_EQ(found.verdict, Verdict::indifferent);
  EXPECT_NE(found.advice.find("steps aside"), std::string::npos);
}

TEST_F(ReplayTest, WithoutGroundNothingIsPredicted) {
  add_rank(TraceKind::write, {0, kMiB});
  Calibration other = a_calibration();
  other.file_system = "nfs4 server:/export";
  EXPECT_NE(predict(job_, other, settings_).problem.find("calibrate"), std::string::npos);
  other = a_calibration();
  other.store_file_system = "nfs4 server:/store";
  EXPECT_NE(predict(job_, other, settings_).problem.find("calibrate --store"), std::string::npos);
  job_.ranks[0].push_back({TraceKind::aside, 0, 0, 0, 0, 0, 100 * kMilli, 0});
  EXPECT_NE(predict(job_, a_calibration(), settings_).problem, "");
  job_.files[0].file_system.clear();  // of an earlier version, on btrfs
  EXPECT_NE(predict(job_, a_calibration(), settings_).problem.find("record again"),
            std::string::npos);
}

TEST_F(ReplayTest, ACalibrationFromAnotherSpeedIsRefused) {
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i < 1000; ++i) offsets.push_back(i * 7919 % 4096 * 2 * kPiece);
  add_rank(TraceKind::write, offsets);
  Calibration slower = a_calibration();
  for (CostPoint& point : slower.points) point.seconds = always(1);
  EXPECT_NE(predict(job_, slower, settings_).problem.find("another state"), std::string::npos);
}

TEST_F(ReplayTest, WhatIsReadAheadForAnotherRankTellsNoOtherSpeed) {
  settings_.file.admit = Admit::always;
  Calibration slower = a_calibration();
  for (CostPoint& point : slower.points) point.seconds = always(1);
  std::vector<std::uint64_t> strided[2];
  std::vector<std::uint64_t> apart;
  for (std::uint64_t i = 0; i < 500; ++i) {
    for (std::uint64_t rank = 0; rank < 2; ++rank) strided[rank].push_back((2 * i + rank) * kPiece);
    apart.push_back(i * 2 * 128 * 1024 % (64 * kMiB));
  }
  for (const auto& offsets : strided) add_rank(TraceKind::read, offsets, 2);
  EXPECT_EQ(predict(job_, slower, settings_).problem, "");
  job_.ranks.clear();
  add_rank(TraceKind::read, apart);
  EXPECT_NE(predict(job_, slower, settings_).problem.find("another state"), std::string::npos);
}

TEST(CalibrationTest, SurvivesItsJsonAndRefusesOthers) {
  const Calibration written = a_calibration();
  Calibration read;
  std::string problem;
  ASSERT_TRUE(parse_calibration(as_json(written), read, problem)) << problem;
  EXPECT_EQ(as_json(read), as_json(written));
  for (const char* text : {"", "{}", "[1]", "{\"format\": \"nvio-calibration\", \"version\": 1}"}) {
    EXPECT_FALSE(parse_calibration(text, read, problem));
    EXPECT_NE(problem, "");
  }
}

// Of a folder that is not named in UTF-8, too; and where one cannot be written, what was there
// stays.
TEST(CalibrationTest, TakesThePlaceOfAnotherWholeOrNotAtAll) {
  char name[] = "/tmp/nvio-calibration-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string path = folder + "/calibration.json";
  Calibration calibration = a_calibration();
  calibration.folder = "/scratch/\xff";
  ASSERT_TRUE(write_calibration(calibration, path));
  const auto content = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = content();
  Calibration read;
  std::string problem;
  EXPECT_TRUE(parse_calibration(before, read, problem)) << problem;
  fs::create_directory(path + ".partial");
  calibration.store = "/elsewhere";
  EXPECT_FALSE(write_calibration(calibration, path));
  EXPECT_EQ(content(), before);
  fs::remove_all(folder);
}

// As /dev/stdout is one, for root too; and one that leads to what is not there yet.
TEST(CalibrationTest, IsWrittenToWhatALinkLeadsTo) {
  char name[] = "/tmp/nvio-calibration-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string link = folder + "/link.json";
  const std::string target = folder + "/target.json";
  fs::create_symlink("target.json", link);
  Calibration calibration = a_calibration();
  for (const char* store : {"/here", "/elsewhere"}) {
    calibration.store = store;
    ASSERT_TRUE(write_calibration(calibration, link));
    EXPECT_TRUE(fs::is_symlink(link));
    std::ifstream file(target);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), as_json(calibration));
  }
  fs::remove_all(folder);
}

TEST(CalibrationTest, OfTheVersionBeforeAPieceIsAsDearAsACall) {
  Calibration written = a_calibration();
  written.points[2].seconds = always(0.001);  // cached reads
  written.points.resize(6);
  std::string text = as_json(written);
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 1");
  Calibration read;
  std::string problem;
  ASSERT_TRUE(parse_calibration(text, read, problem)) << problem;
  EXPECT_DOUBLE_EQ(Costs(read, Case::median).transfer(Way::piece_read, 64, 1), 0.001);
  EXPECT_FALSE(parse_calibration(as_json(written), read, problem)) << "it lacks pieces";
}

TEST(CalibrationTest, CostsAreLinearBetweenWhatWasMeasured) {
  Calibration calibration;
  calibration.points = {{Way::read, 1000, 1, {1, 2, 3}},
                        {Way::read, 3000, 1, {3, 4, 5}},
                        {Way::read, 1000, 4, {4, 8, 12}},
                        {Way::read, 3000, 4, {6, 10, 14}}};
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::median).transfer(Way::read, 2000, 1), 3);
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::low).transfer(Way::read, 500, 1), 1);
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::high).transfer(Way::read, 5000, 1), 7);
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::median).transfer(Way::read, 1000, 2), 4);
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::median).transfer(Way::read, 1000, 7), 14);
  EXPECT_DOUBLE_EQ(Costs(calibration, Case::high).drift(Way::read, 1000, 1), 1.5);
}

TEST(JobTraceTest, FoldersThatAreNoneAreRefused) {
  char name[] = "/tmp/nvio-job-XXXXXX";
  const std::string folder = mkdtemp(name);
  EXPECT_NE(read_job(folder).problem.find("record again"), std::string::npos);
  std::ofstream(folder + "/job.json") << job_json({"./app"}, 1.5, 3);
  EXPECT_NE(read_job(folder).problem.find("status 3"), std::string::npos);
  std::ofstream(folder + "/job.json") << job_json({"./app"}, 1.5, 0);
  EXPECT_NE(read_job(folder).problem.find("no MPI-IO call"), std::string::npos);
  std::ofstream(folder + "/job.json") << "{";
  EXPECT_NE(read_job(folder).problem.find("damaged"), std::string::npos);
  fs::remove_all(folder);
}

// As a script does that has one program write what another reads.
TEST(JobTraceTest, LaunchesOneAfterAnotherAreNoOneJob) {
  char name[] = "/tmp/nvio-job-XXXXXX";
  const std::string folder = mkdtemp(name);
  std::ofstream(folder + "/job.json") << job_json({"./script"}, 1.5, 0);
  const auto add = [&](std::uint32_t process, std::uint64_t start) {
    TraceWriter writer(folder + "/" + std::to_string(process) + ".trace", start, process, "node7");
    writer.add_file({.device = 1, .inode = 99}, "/scratch/data", "ext4 /dev/sdb1");
    writer.add({TraceKind::open, 0, 0, 1, 0, kTraceReads, 0, 500});
    writer.add({TraceKind::close, 0, 0, 1, 0, kTraceReads, 900, 50});
    writer.add({TraceKind::end, 0, 0, 0, 0, 0, 1000, 0});
  };
  add(1, 0);
  add(2, 999);
  EXPECT_EQ(read_job(folder).problem, "");
  add(3, 1001);
  const JobTrace job = read_job(folder);
  EXPECT_NE(job.problem.find("record each by itself"), std::string::npos) << job.problem;
  EXPECT_EQ(job.ranks.size(), 3U);  // to be drawn
  fs::remove_all(folder);
}

}  // namespace
}  // namespace nvio
