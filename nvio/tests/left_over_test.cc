// What a close could not write, and what a killed run left: it is there when it is looked for, it
// is not written over, and never comes over what was written since.
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "../nodes/other_jobs.h"
#include "../recovery/recover.h"
#include "../settings/launcher.h"
#include "full_file_system.h"
#include "left_over_fixture.h"

namespace nvio {
namespace {

constexpr std::size_t kLength = 1000;

TEST_F(LeftOverTest, NothingIsLeftByTwoThatEndAtOnce) {
  for (int round = 0; round < 500; ++round) {
    auto gives_up = join();
    CachedFile* file = open_in(*gives_up);
    put(*file, std::string(kLength, 'b'));
    auto ends = join();
    std::thread other([&] {
      EXPECT_EQ(file->step_aside(), 0);
      gives_up->give_up_store();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(round % 50 * 10));
    ends.reset();
    other.join();
    ASSERT_FALSE(fs::exists(folder())) << "after " << round << " rounds";
  }
}

TEST_F(LeftOverTest, AFileOpenedAgainHoldsWhatItsCloseCouldNotWrite) {
  auto session = join();
  CachedFile* file = open_in(*session);
  const std::string before(kLength, 'b');
  put(*file, before);
  {
    const FullFileSystem full(kPlace);
    EXPECT_EQ(session->release(file), EFBIG);
  }
  EXPECT_TRUE(fs::exists(folder() + "/1.redo")) << "what a crash now would leave for recovery";
  file = open_in(*session);
  std::string got(kLength, ' ');
  EXPECT_EQ(file->read(kPlace, got.data(), kLength), static_cast<ssize_t>(kLength));
  EXPECT_EQ(got, before);
  const std::string after(kLength / 2, 'a');
  put(*file, after);
  EXPECT_EQ(session->release(file), 0);
  EXPECT_FALSE(fs::exists(folder() + "/1.redo")) << "recovery would write over what is newer";
  session.reset();
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(at_place(), after + before.substr(after.size()));
}

// Another rank may be the one that opens it again; and closing in vain again loses nothing.
TEST_F(LeftOverTest, WhatNoCloseCouldWriteIsWrittenByTheFirstThatCan) {
  auto first = join();
  auto second = join();
  CachedFile* file = open_in(*first);
  put(*file, std::string(kLength, 'u'));
  {
    const FullFileSystem full(kPlace);
    EXPECT_EQ(first->release(file), EFBIG);
    EXPECT_EQ(second->release(open_in(*second)), EFBIG);
  }
  EXPECT_EQ(second->release(open_in(*second)), 0);
  first.reset();
  second.reset();
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(at_place(), std::string(kLength, 'u'));
}

TEST_F(LeftOverTest, WhatCouldNotBeWrittenGoesWithItsFile) {
  for (const bool before_the_close : {true, false}) {
    auto session = join();
    CachedFile* file = open_in(*session);
    put(*file, "of a file that goes");
    if (before_the_close) fs::remove(path_);
    {
      const FullFileSystem full(kPlace);
      EXPECT_EQ(session->release(file), EFBIG);
    }
    fs::remove(path_);
    session.reset();
    EXPECT_FALSE(fs::exists(folder())) << "a store from which nothing can be recovered";
  }
}

TEST_F(LeftOverTest, ALogThatIsThereAlreadyIsNotWrittenTo) {
  auto session = join();
  std::ofstream(folder() + "/1.redo") << "of another file";
  CachedFile* file = open_in(*session);
  put(*file, "synced");
  EXPECT_EQ(file->sync(), 0);
  EXPECT_TRUE(fs::exists(folder() + "/2.redo"));
  std::ifstream log(folder() + "/1.redo");
  const std::string content{std::istreambuf_iterator<char>(log), {}};
  EXPECT_EQ(content, "of another file");
  EXPECT_EQ(session->release(file), 0);
}

TEST_F(LeftOverTest, AReaderThatStepsAsideWritesWhatOthersWrote) {
  auto writer = join();
  auto reader = join();
  CachedFile* written = open_in(*writer);
  put(*written, "of the writer");
  CachedFile* read = open_in(*reader, O_RDONLY);
  EXPECT_EQ(read->step_aside(), 0);
  EXPECT_EQ(at_place(), "of the writer");
  EXPECT_EQ(read->write(kPlace, "reader's", 8), -1) << "it was opened for reading only";
  EXPECT_EQ(reader->release(read), 0);
  EXPECT_EQ(writer->release(written), 0);
}

TEST_F(LeftOverTest, AReaderThatClosesLastLosesNothingThatTheWriterCouldNotWrite) {
  auto writer = join();
  auto reader = join();
  CachedFile* written = open_in(*writer);
  put(*written, "of the writer");
  CachedFile* read = open_in(*reader, O_RDONLY);
  {
    const FullFileSystem full(kPlace);
    EXPECT_EQ(written->write_back(), EFBIG) << "what a close does first";
    EXPECT_EQ(writer->release(written), 0);
    EXPECT_EQ(reader->release(read), EFBIG);
  }
  writer.reset();
  reader.reset();
  const RecoverReport report = recover(folder(), {});
  EXPECT_TRUE(report.good()) << report.problem << describe(report, false);
  EXPECT_EQ(at_place(), "of the writer");
}

TEST_F(LeftOverTest, WhoCannotJoinKnowsWhetherOthersDid) {
  EXPECT_FALSE(others_have_store(settings_));
  auto session = join();
  EXPECT_TRUE(others_have_store(settings_));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  const bool without_descriptors = others_have_store(settings_);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(without_descriptors);
  session.reset();
  EXPECT_FALSE(others_have_store(settings_));
  be_killed_after(open_file(), [](CachedFile&) {});
  EXPECT_FALSE(others_have_store(settings_)) << "of a dead run";
}

TEST_F(LeftOverTest, ANewRunBeginsWithWhatAKilledOneWroteInItsFiles) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { put(file, "of the killed run"); });
  auto session = join();
  EXPECT_EQ(at_place(), "of the killed run");
  EXPECT_NE(session->remark(), "");
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  ::close(fd);
  EXPECT_EQ(session->segment().find(status), kNone) << "the table is the dead run's";
  CachedFile* file = open_in(*session);
  put(*file, "of the new");
  EXPECT_EQ(session->release(file), 0);
  session.reset();
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(at_place(), "of the newled run");
}

TEST_F(LeftOverTest, OfAKilledRunThatWroteNothingNothingIsServed) {
  std::ofstream(path_) << "as it was";
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile&) {});
  auto session = join();
  EXPECT_EQ(session->remark(), "");
  struct stat status {};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(session->segment().find(status), kNone);
  ::close(fd);
}

TEST_F(LeftOverTest, WhatCannotBeWrittenToItsFileIsRefusedToAllWhoCome) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { put(file, "of the killed run"); });
  ::close(fd);
  fs::rename(path_, path_ + ".old");
  std::ofstream(path_) << "somebody else's";
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("nvio recover"), std::string::npos) << why;
  EXPECT_EQ(file_content(), "somebody else's");
  // The next could write it, but the first goes on without the store.
  fs::rename(path_, path_ + ".other");
  fs::rename(path_ + ".old", path_);
  why.clear();
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("nvio recover"), std::string::npos) << why;
  LifeLock other(::open((folder() + "/alive").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(other.share());
  EXPECT_FALSE(others_have_store(settings_)) << "all go on without it";
  EXPECT_TRUE(fs::exists(folder() + "/segment"));
  EXPECT_EQ(file_content(), "");
}

// Memory that a process may have for itself: a mapping to read is none, nor one that all share.
TEST_F(LeftOverTest, WhatAKilledRunLeftIsSettledWhereMemoryIsShort) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { put(file, "of the killed run"); });
  ::close(fd);
  const pid_t child = fork();
  if (child == 0) {
    std::uint64_t used_kib = 0;
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word && word != "VmData:";) continue;
    status >> used_kib;
    const rlimit data{(used_kib + 1024) << 10, RLIM_INFINITY};
    setrlimit(RLIMIT_DATA, &data);
    std::string why;
    _exit(Session::join(settings_, why) != nullptr ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(at_place(), "of the killed run");
}

// It says that it has used more than there is.
void damage(Session& session) {
  session.segment().header().fresh_slot = session.segment().header().slots + 1;
}

TEST_F(LeftOverTest, WhatCannotBeLookedAtIsRefusedToAllWhoCome) {
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file, Session& session) {
    put(file, "of the killed run");
    damage(session);
  });
  ::close(fd);
  for (int i = 0; i < 2; ++i) {
    std::string why;
    EXPECT_EQ(Session::join(settings_, why), nullptr);
    EXPECT_NE(why.find("nvio recover"), std::string::npos) << why;
  }
  LifeLock other(::open((folder() + "/alive").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(other.share());
  EXPECT_FALSE(others_have_store(settings_));
  EXPECT_TRUE(fs::exists(folder() + "/segment"));
}

TEST_F(LeftOverTest, WhatAnotherJobLeftAndCannotBeLookedAtIsRecoveredFirst) {
  expect_refusal_beside([](CachedFile& file, Session& session) {
    file.write(0, "left", 4);
    damage(session);
  });
}

TEST_F(LeftOverTest, WhoCannotLookAtWhatARunningJobCachesSaysSo) {
  const auto session = join();
  CachedFile* file = open_in(*session);
  put(*file, "cached");
  const std::uint32_t used = session->segment().header().fresh_slot;
  damage(*session);
  testing::internal::CaptureStderr();
  EXPECT_EQ(step_aside_elsewhere(settings_, path_.c_str()), 0);
  const std::string told = testing::internal::GetCapturedStderr();
  session->segment().header().fresh_slot = used;
  EXPECT_NE(told.find("may read old bytes"), std::string::npos) << told;
  EXPECT_EQ(session->release(file), 0);
}

TEST_F(LeftOverTest, OnSeveralNodesAKilledRunIsRefused) {
  settings_.nodes = 2;
  settings_.node = 0;
  const int fd = open_file();
  be_killed_after(fd, [](CachedFile& file) { put(file, "of the killed run"); });
  ::close(fd);
  std::string why;
  EXPECT_EQ(Session::join(settings_, why), nullptr);
  EXPECT_NE(why.find("nvio recover"), std::string::npos) << why;
  EXPECT_EQ(file_content(), "");
}

// Each job of several machines has a name of its own below its session's, as two may run at the
// same time: what a killed one left must not come over what the next one writes all the same.
TEST_F(LeftOverTest, WhatAnotherJobOfTheSessionLeftIsRecoveredBeforeTheNextBegins) {
  const std::string left =
      expect_refusal_beside([](CachedFile& file) { file.write(0, "left", 4); });
  RecoverOptions options;
  options.latest = true;
  EXPECT_TRUE(recover(left, options).good());
  const auto first = join();
  settings_.session = "test.0000000c";
  EXPECT_NE(join(), nullptr) << "beside one that runs";
}

}  // namespace
}  // namespace nvio
