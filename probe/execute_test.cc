// The program as a caller runs it, with commands of the system. No time is ever asserted.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

struct Outcome {
  int code = 0;
  std::string all;
  std::vector<json> lines;

  json only() const {
    EXPECT_EQ(lines.size(), 2u) << all;
    return lines.empty() ? json() : lines.front();
  }
};

Outcome shell(const std::string& line) {
  FILE* pipe = popen(("{ " + line + "; } 2>&1 </dev/null").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.all += buffer.data();
  outcome.code = WEXITSTATUS(pclose(pipe));
  std::istringstream text(outcome.all);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("{")) outcome.lines.push_back(json::parse(line));
  }
  return outcome;
}

Outcome execute(const std::string& arguments) { return shell(EXECUTE_PROGRAM " " + arguments); }

// A folder of the test's own, which goes with it.
class Execution : public testing::Test {
 protected:
  Execution() {
    std::string name = testing::TempDir() + "executeXXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Execution() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string content(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(Execution, TellsItsTimesAndWhatTheKernelCounted) {
  const json line =
      execute("-- sh -c 'head -c 8000000 /dev/urandom | gzip >" + path("out") + "'").only();
  EXPECT_EQ(line.at("event"), "execution");
  EXPECT_EQ(line.at("code"), 0);
  EXPECT_GT(line.at("wall_ns"), 0);
  // Of the shell's children too, which it waited for.
  EXPECT_GT(line.at("user_ns").get<int64_t>() + line.at("system_ns").get<int64_t>(), 1'000'000);
  EXPECT_GE(line.at("read_bytes"), 16'000'000);
  EXPECT_GE(line.at("written_bytes"), 16'000'000);
  EXPECT_GT(line.at("minor_faults"), 0);
  EXPECT_GE(line.at("major_faults"), 0);
  EXPECT_GT(line.at("voluntary_switches"), 0);
}

TEST_F(Execution, TellsThePeakOfTheCommandsMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory is counted until the command is started";
#endif
  const std::string hold = "-- dd if=/dev/zero of=/dev/null count=1 bs=";
  const auto peak = [](const Outcome& outcome) {
    return outcome.only().at("peak_bytes").get<int64_t>();
  };
  const int64_t little = peak(execute(hold + "1K"));
  EXPECT_LT(little, 8 << 20);
  EXPECT_GT(peak(execute(hold + "64M")), little + (60 << 20));
}

TEST_F(Execution, IsRepeatedAndPreparedAndCleanedUpEachTime) {
  const std::string log = " >>" + path("log");
  const Outcome outcome = execute("--runs 2 --warmup 1 --prepare 'echo prepare" + log +
                                  "' --check 'echo checked' --cleanup 'echo clean" + log +
                                  "' -- sh -c 'echo run" + log + "'");
  ASSERT_EQ(outcome.lines.size(), 4u) << outcome.all;
  EXPECT_EQ(outcome.lines[0].at("warmup"), true);
  EXPECT_EQ(outcome.lines[1].at("warmup"), false);
  EXPECT_EQ(outcome.lines[2].at("check"), "checked\n");
  EXPECT_EQ(outcome.lines[3].at("event"), "done");
  const std::string once = "prepare\nrun\nclean\n";
  EXPECT_EQ(content("log"), once + once + once);
}

TEST_F(Execution, IsCleanedUpAfterWhateverWentWrong) {
  const std::string clean = " --cleanup 'echo clean >>" + path("log") + "'";
  for (const char* wrong : {"--prepare 'echo why; false'", "--check 'echo why; false'"}) {
    const Outcome outcome = execute(wrong + clean + " -- true");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.all.find("'echo why; false' ended with code 1: why"), std::string::npos);
    EXPECT_EQ(content("log"), "clean\n") << wrong;
    std::filesystem::remove(folder_ / "log");
  }
  const std::string both = execute("--check false --cleanup 'exit 3' -- true").all;
  EXPECT_NE(both.find("the check 'false' ended with code 1"), std::string::npos) << both;
  EXPECT_NE(both.find("the clean-up 'exit 3' ended with code 3"), std::string::npos) << both;
}

TEST_F(Execution, NamesTheLineThatDoesNotEnd) {
  const Outcome outcome =
      execute("--timeout-ns 1 --line-timeout-ns 1000000000 --prepare 'sleep 600' -- true");
  EXPECT_NE(outcome.all.find("the preparation 'sleep 600' did not end within 1 s"),
            std::string::npos)
      << outcome.all;
}

TEST_F(Execution, BecomesACommandWithTheVariablesThatWereHandedOver) {
  const auto become = [](const std::string& variables, const std::string& command) {
    const std::string words =
        "env -i PATH=/usr/bin:/bin " + variables + " " EXECUTE_PROGRAM " --become " + command;
    return shell(words).all;
  };
  EXPECT_EQ(become("TARE_GIVEN_HOME='/a=b' HOME=/root TARE_GIVEN_x.y=1", "-- env | sort"),
            "HOME=/a=b\nPATH=/usr/bin:/bin\nx.y=1\n");
  // Found where programs usually are, and given its own PATH nevertheless.
  EXPECT_EQ(become("TARE_GIVEN_PATH=" + folder_.string(), "--cwd / -- sh -c 'echo $PATH; pwd'"),
            folder_.string() + "\n/\n");
  std::ofstream(path("file")) << "no folder\n";
  EXPECT_EQ(become("TARE_GIVEN_PATH=" + path("file"), "-- sh -c 'echo found'"), "found\n");
  EXPECT_NE(become("", "-- no-such-program").find("no-such-program: No such file"),
            std::string::npos);
}

TEST_F(Execution, GoesOnForATimeWhereNoNumberIsAsked) {
  const Outcome outcome = execute("--runs 0 --for-ns 60000000 -- sleep 0.02");
  EXPECT_GE(outcome.lines.size(), 3u);
  EXPECT_LE(outcome.lines.size(), 4u) << "three of 20 ms are enough";
  EXPECT_EQ(execute("--runs 0 --for-ns 1 -- true").lines.size(), 2u) << "one is always made";
  for (const char* line : {"--prepare", "--check", "--cleanup"}) {
    const json only =
        execute("--runs 0 --for-ns 60000000 " + std::string(line) + " 'sleep 0.06' -- true").only();
    EXPECT_GE(only.at("round_ns"), 60'000'000) << "what is beside takes of that time";
    EXPECT_LT(only.at("wall_ns"), only.at("round_ns"));
  }
}

TEST_F(Execution, ReadsItsInputAnewEachTimeAndWorksWhereItIsTold) {
  std::ofstream(path("in")) << "some words\n";
  const Outcome outcome = execute("--runs 2 --tell 999 --cwd " + folder_.string() +
                                  " --stdin in -- sh -c 'cat; pwd; cat no-such-file || true'");
  ASSERT_EQ(outcome.lines.size(), 3u) << outcome.all;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(outcome.lines[i].at("stdout"), "some words\n" + folder_.string() + "\n");
    EXPECT_NE(outcome.lines[i].at("stderr").get<std::string>().find("no-such-file"),
              std::string::npos);
  }
}

TEST_F(Execution, OfAScriptWithoutItsFirstLineIsAShells) {
  std::ofstream(path("script")) << "echo \"$@\"\n";
  std::filesystem::permissions(path("script"), std::filesystem::perms::owner_all);
  for (const std::string& name : {path("script"), std::string("script")}) {
    const Outcome outcome = shell("PATH=" + folder_.string() +
                                  ":$PATH " EXECUTE_PROGRAM " --tell 99 -- " + name + " a 'b c'");
    EXPECT_EQ(outcome.only().at("stdout"), "a b c\n") << outcome.all;
  }
}

TEST_F(Execution, OfAProgramOfAnotherMachineIsNoShells) {
  std::ofstream(path("other")) << "\x7f"
                                  "ELF"
                               << std::string(200, '\0') << "\ntouch " << path("made");
  std::filesystem::permissions(path("other"), std::filesystem::perms::owner_all);
  const Outcome outcome = execute("-- " + path("other"));
  EXPECT_NE(outcome.all.find("Exec format error"), std::string::npos) << outcome.all;
}

TEST_F(Execution, OfAPipeAsItsInputIsRefusedAndNotWaitedFor) {
  shell("mkfifo " + path("pipe"));
  const Outcome outcome = execute("--timeout-ns 1000000000 --stdin " + path("pipe") + " -- cat");
  EXPECT_NE(outcome.all.find("is a pipe"), std::string::npos) << outcome.all;
}

TEST_F(Execution, StopsAtAnUnexpectedEndAndTellsWhatWasWritten) {
  const json line =
      execute("--runs 5 --check 'touch " + path("checked") + "' -- sh -c 'echo why; exit 3'")
          .only();
  EXPECT_EQ(line.at("code"), 3);
  EXPECT_EQ(line.at("stdout"), "why\n");
  EXPECT_FALSE(std::filesystem::exists(path("checked")));
  EXPECT_EQ(execute("--runs 2 --exit 3 -- sh -c 'exit 3'").lines.size(), 3u);
  EXPECT_EQ(execute("-- sh -c 'kill -SEGV $$'").only().at("code"), -11);
}

TEST_F(Execution, KillsWhatTakesTooLongWithItsChildren) {
  const json line = execute("--timeout-ns 100000000 -- sh -c 'sleep 30; true'").only();
  EXPECT_EQ(line.at("timed_out"), true);
  EXPECT_EQ(line.at("code"), -9);
  // Too long, and over before it was looked at again.
  EXPECT_EQ(execute("--timeout-ns 1000000 -- sleep 0.02").only().at("timed_out"), true);
}

TEST_F(Execution, LeavesNothingRunning) {
  // In a session of its own, as a server puts itself: no process group reaches it.
  for (const char* end : {"true", "exit 3"}) {
    const json line =
        execute(std::string("--tell 20 -- sh -c 'setsid sleep 300 & echo $!; ") + end + "'").only();
    const pid_t left = std::stoi(std::string(line.at("stdout")));
    EXPECT_NE(kill(left, 0), 0) << left;
    EXPECT_EQ(errno, ESRCH);
  }
}

// As init reaps what a user's shell leaves; else who waits for its end waits for ever.
TEST_F(Execution, ReapsWhatEndsWithoutAParent) {
  const std::string pid = path("pid");
  const Outcome outcome =
      execute("--timeout-ns 5000000000 --prepare 'sleep 0.1 & echo $! >" + pid +
              "' -- sh -c 'while kill -0 $(cat " + pid + ") 2>/dev/null; do sleep 0.02; done'");
  EXPECT_EQ(outcome.code, 0) << outcome.all;
  EXPECT_FALSE(outcome.only().at("timed_out").get<bool>());
}

TEST_F(Execution, KeepsWhatWasWrittenBesideWhoOpensTheOutputAnew) {
  const Outcome outcome = execute("--tell 99 -- sh -c 'echo a; echo b >>/dev/stdout; echo c'");
  EXPECT_EQ(outcome.only().at("stdout"), "a\nb\nc\n");
}

// The kernel refuses sendfile and splice to a descriptor that appends.
TEST_F(Execution, ThatIsDiscardedMayComeFromTheKernel) {
  const Outcome outcome = execute(
      "--discard -- python3 -c 'import os; os.sendfile(1, os.open(\"/bin/sh\", 0), 0, 100)'");
  EXPECT_EQ(outcome.only().at("code"), 0) << outcome.all;
}

TEST_F(Execution, ToldToEndEndsWhatItRuns) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = signal(number, SIG_DFL);  // what is ignored here stays ignored there
    const Outcome outcome = execute("-- sh -c 'echo $$ >" + path("pid") + "; kill -" +
                                    std::to_string(number) + " $PPID; exec sleep 300'");
    signal(number, before);
    EXPECT_EQ(outcome.code, 1) << number;
    ASSERT_EQ(outcome.lines.size(), 1u) << outcome.all;
    EXPECT_EQ(outcome.lines[0].at("event"), "failed");
    const pid_t left = std::stoi(content("pid"));
    EXPECT_NE(kill(left, 0), 0) << left;
    EXPECT_EQ(errno, ESRCH);
  }
}

TEST_F(Execution, TellsTheEndsOfALongOutputAndHoldsLittleOfIt) {
  const json line =
      execute("--tell 20 -- sh -c 'echo first; head -c 200000000 /dev/zero; echo last'").only();
  EXPECT_EQ(line.at("stdout_bytes"), 200'000'011);
  const std::string told = line.at("stdout");
  EXPECT_TRUE(told.starts_with("first\n")) << told.size();
  EXPECT_TRUE(told.ends_with("last\n")) << told.size();
  EXPECT_EQ(execute("--discard --tell 20 -- echo word").only().at("stdout"), "");
}

TEST_F(Execution, TellsBytesThatAreNoUtf8) {
  EXPECT_EQ(execute("--tell 20 -- printf 'a\\377b'").only().at("stdout"),
            "a\xEF\xBF\xBD"
            "b");
}

TEST_F(Execution, OfAnEmptyProgramComesFirst) {
  // Of several words; and ":" is a command of a Bourne shell alone.
  const std::string word = "--empty-shell ";
  for (const std::string& shell :
       {std::string(), word + "sh ", word + "env " + word + "bash ", word + "python3 "}) {
    const Outcome outcome = execute("--empty 3 " + shell + "-- true");
    ASSERT_EQ(outcome.lines.size(), 3u) << outcome.all;
    EXPECT_EQ(outcome.lines[0].at("event"), "empty");
    EXPECT_EQ(outcome.lines[0].at("wall_ns").size(), 3u);
  }
}

TEST_F(Execution, ThatCannotBeMadeIsSaid) {
  for (const char* wrong :
       {"-- no-such-program", "--prepare 'exit 4' -- true", "--check 'echo broken; exit 4' -- true",
        "--cwd /no/such -- true", "--stdin /no/such -- true", "--at 127.0.0.1 --port 1 -- true"}) {
    const Outcome outcome = execute(wrong);
    EXPECT_EQ(outcome.code, 1) << wrong;
    ASSERT_EQ(outcome.lines.size(), 1u) << outcome.all;
    EXPECT_EQ(outcome.lines[0].at("event"), "failed");
    EXPECT_NE(outcome.lines[0].at("why"), "");
  }
  for (const char* wrong : {"", "--runs x -- true", "--runs -1 -- true", "--nonsense -- true"}) {
    EXPECT_EQ(execute(wrong).code, 2) << wrong;
  }
}

}  // namespace
