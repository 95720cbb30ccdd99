// The program as its user meets it: the real binary, what it prints and returns.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace {

const std::string kData = WALKS_TESTDATA;

struct Outcome {
  int code = 0;
  std::string text;  // standard output and error
};

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/walks-cli-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string in(const std::string& name) const { return folder_ + "/" + name; }

  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }

  static Outcome walks(const std::string& arguments, const std::string& before = "") {
    const std::string command =
        before + " timeout 60 " + std::getenv("WALKS_BINARY") + " " + arguments + " 2>&1";
    Outcome outcome;
    std::FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return {-1, "popen failed"};
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      outcome.text += static_cast<char>(c);
    }
    outcome.code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }

 private:
  std::string folder_;
};

TEST_F(Cli, HelpTeaches) {
  const Outcome help = walks("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.text.find("mpirun -n 4 walks power g.wm --power 3"), std::string::npos);
  const Outcome power = walks("power --help");
  EXPECT_EQ(power.code, 0);
  EXPECT_NE(power.text.find("--pattern"), std::string::npos);
}

TEST_F(Cli, WrongUseIsOneSentenceAndCodeTwo) {
  const Outcome unknown = walks("power g.wm -o x.wm --pattern zigzag");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.text.find("zigzag is none of: block, collective, rows, shift, views"),
            std::string::npos)
      << unknown.text;
  EXPECT_EQ(walks("").code, 2);
  const Outcome bogus = walks("bogus");
  EXPECT_EQ(bogus.code, 2);
  EXPECT_EQ(bogus.text.find("walks: there is no command 'bogus'\n"), 0U) << bogus.text;
}

TEST_F(Cli, RefusesTheLauncherOfAnotherMpi) {
  const char* binary = std::getenv("WALKS_BINARY");
  ASSERT_NE(binary, nullptr);
  const bool open = std::string(binary).ends_with("openmpi");
  const std::string variable = open ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE";
  const std::string make = "generate " + in("g.wm") + " --vertices 20";
  const Outcome foreign = walks(make, "env " + variable + "=4");
  EXPECT_EQ(foreign.code, 2);
  EXPECT_NE(foreign.text.find("another MPI than this program"), std::string::npos) << foreign.text;
  EXPECT_FALSE(std::filesystem::exists(in("g.wm")));
  const std::string srun = "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 ";
  EXPECT_EQ(walks(make, "env " + srun).code, 2);
  EXPECT_FALSE(std::filesystem::exists(in("g.wm")));
  // Of which one started this launcher, alone.
  EXPECT_EQ(
      walks(make, "env PMI_SIZE=1 PMI_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0").code,
      2);
  EXPECT_FALSE(std::filesystem::exists(in("g.wm")));
  // One rank of a launcher that Slurm started on the nodes; a shell of `srun --pty`.
  for (const std::string alone :
       {variable + "=1", srun + variable + "=1", srun + "SLURM_PTY_PORT=9"}) {
    EXPECT_EQ(walks(make, "env " + alone).code, 0) << alone;
  }
}

TEST_F(Cli, AnswersThePapersQuestionsFromText) {
  EXPECT_EQ(walks("between " + kData + "/paper.txt -p 2 --from 4 --to 3").text,
            "2 walks of length 2 from 4 to 3\n");
  EXPECT_EQ(walks("triangles " + kData + "/paper.mtx").text,
            "2 triangles (6 closed walks of length 3, three a directed triangle)\n");
  const Outcome paths =
      walks("paths " + kData + "/paper.txt --from 3 --to 1 -o " + in("lengths.wm"));
  EXPECT_NE(paths.text.find("shortest walk from 3 to 1: 2\n"), std::string::npos) << paths.text;
}

// Two runs that ask about one text have a matrix of it each.
TEST_F(Cli, AQuestionAboutATextTouchesNoOtherFileBesideIt) {
  const std::string text = in("g.txt");
  std::filesystem::copy_file(kData + "/paper.txt", text);
  std::filesystem::copy_file(kData + "/paper.mtx", text + ".import");
  EXPECT_EQ(walks("between " + text + " -p 2 --from 4 --to 3").text,
            "2 walks of length 2 from 4 to 3\n");
  EXPECT_TRUE(std::filesystem::exists(text + ".import"));
  EXPECT_EQ(files(), 2);
  // Where nothing can be written, as in a folder of somebody else's.
  const std::string beside_none = in(std::string(250, 'g'));
  std::filesystem::copy_file(text, beside_none);
  const Outcome refused = walks("triangles " + beside_none);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.text.find("File name too long; make one elsewhere with walks convert"),
            std::string::npos)
      << refused.text;
}

TEST_F(Cli, WeightsOfATextHaveTheCellsThatAreAskedFor) {
  std::ofstream(in("w.txt")) << "1 2 300\n2 3 300\n3 1 300\n";
  const Outcome power = walks("power " + in("w.txt") + " -p 2 --cell 4 --verify -o " + in("w2.wm"));
  EXPECT_EQ(power.code, 0) << power.text;
  const Outcome market =
      walks("convert " + in("w.txt") + " --cell 2 --to-market -o " + in("w.mtx"));
  EXPECT_EQ(market.code, 0) << market.text;
  const Outcome cut = walks("convert " + in("w.txt") + " --saturate -o " + in("w1.wm"));
  EXPECT_EQ(cut.code, 0) << cut.text;
  EXPECT_EQ(walks("between " + in("w1.wm") + " --from 1 --to 2").text,
            "at least 255 walks of length 1 from 1 to 2\n");
  const Outcome refused = walks("triangles " + in("w.txt"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.text, "walks: " + in("w.txt") +
                              ", line 1: edge 1 -> 2 has a weight that does not fit a cell of 1 "
                              "byte(s); walks convert --cell 2 makes a matrix of wider cells\n");
}

TEST_F(Cli, OptionsThatTheGraphDoesNotObeyAreRefused) {
  std::ofstream(in("g.txt")) << "1 1\n1 2\n2 3\n";
  walks("convert " + in("g.txt") + " -o " + in("g.wm"));
  for (const std::string option : {"--no-loops", "--undirected", "--duplicates one"}) {
    const Outcome matrix = walks("power " + in("g.wm") + " " + option + " -o " + in("x.wm"));
    EXPECT_EQ(matrix.code, 1) << option;
    EXPECT_NE(matrix.text.find(" is a walks matrix, and " + option.substr(0, option.find(' '))),
              std::string::npos)
        << matrix.text;
  }
  const Outcome market = walks("power " + kData + "/paper.mtx --undirected -o " + in("x.wm"));
  EXPECT_EQ(market.code, 1);
  EXPECT_NE(market.text.find("--undirected is for edge lists"), std::string::npos) << market.text;
  // These a matrix obeys.
  EXPECT_EQ(walks("convert " + in("g.wm") + " --no-loops --to-market -o " + in("g.mtx")).code, 0);
  std::ifstream text(in("g.mtx"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(text), {}),
            "%%MatrixMarket matrix coordinate integer general\n3 3 2\n1 2 1\n2 3 1\n");
  const Outcome directed = walks("triangles --undirected " + kData + "/paper.mtx");
  EXPECT_NE(directed.text.find("is not undirected"), std::string::npos) << directed.text;
}

TEST_F(Cli, AWalkThatWasNotLookedForIsNotDenied) {
  std::ofstream(in("line.txt")) << "1 2\n2 3\n3 4\n";
  const std::string ends = " --from 1 --to 4";
  const std::string none = "shortest walk from 1 to 4: none up to length 2\n";
  const Outcome paths =
      walks("paths " + in("line.txt") + " --longest 2 -o " + in("l.wm") + ends + " --quiet");
  EXPECT_NE(paths.text.find(none), std::string::npos) << paths.text;
  EXPECT_EQ(walks("between " + in("l.wm") + ends).text, none);
  const Outcome record = walks("between --json " + in("l.wm") + ends);
  EXPECT_TRUE(nlohmann::json::parse(record.text)["length"].is_null()) << record.text;
  // A length of 300, in a cell that is then cut.
  std::fstream lengths(in("l.wm"), std::ios::binary | std::ios::in | std::ios::out);
  lengths.seekp(4096 + 3 * 2).write("\x2c\x01", 2);
  lengths.close();
  walks("convert " + in("l.wm") + " --cell 1 --saturate -o " + in("l1.wm"));
  EXPECT_EQ(walks("between " + in("l1.wm") + ends).text,
            "shortest walk from 1 to 4: at least 255\n");
}

TEST_F(Cli, PowerWritesVerifiesAndRecords) {
  const Outcome made = walks("generate " + in("g.wm") + " --vertices 60 --probability 0.1");
  EXPECT_EQ(made.code, 0) << made.text;
  const Outcome power =
      walks("power " + in("g.wm") + " -p 3 --cell 2 --verify --json --quiet -o " + in("g3.wm"));
  ASSERT_EQ(power.code, 0) << power.text;
  const auto record = nlohmann::json::parse(power.text);
  EXPECT_EQ(record["power"], 3);
  EXPECT_EQ(record["products"].size(), 2U);
  EXPECT_EQ(record["verified"]["wrong_cells"], 0);
  const auto& rank = record["rank_totals"][0];
  for (const char* const phase :
       {"open_s", "read_s", "compute_s", "write_s", "sync_s", "close_s"}) {
    EXPECT_TRUE(rank[phase].is_number()) << phase;
  }
  EXPECT_EQ(walks("info " + in("g3.wm")).text,
            in("g3.wm") + ": walks of length 3, 60 vertices from 1, cells of 2 bytes, row-major\n");
}

TEST_F(Cli, RecordsAGraphWhoseNameIsNoUtf8) {
  const Outcome made = walks("generate --json --quiet --vertices 20 " + in("g\xff.wm"));
  EXPECT_EQ(made.code, 0);
  EXPECT_EQ(nlohmann::json::parse(made.text)["output"]["vertices"], 20) << made.text;
}

TEST_F(Cli, VerifyRowsAsksForVerification) {
  walks("generate " + in("g.wm") + " --vertices 20 --probability 0.2");
  const Outcome power = walks("power " + in("g.wm") + " -p 2 --verify-rows 5 -o " + in("g2.wm"));
  EXPECT_NE(power.text.find("verified: 5 rows equal"), std::string::npos) << power.text;
  const Outcome verify = walks("verify " + in("g.wm") + " " + in("g2.wm") + " --verify-rows 6");
  EXPECT_NE(verify.text.find("verified: 6 rows equal"), std::string::npos) << verify.text;
  const Outcome all =
      walks("verify " + in("g.wm") + " " + in("g2.wm") + " --rows 18446744073709551615");
  EXPECT_NE(all.text.find("verified: 20 rows equal"), std::string::npos) << all.text;
}

TEST_F(Cli, VerifyTakesNoResultForTheGraph) {
  walks("generate " + in("g.wm") + " --vertices 20 --probability 0.2");
  walks("paths " + in("g.wm") + " -o " + in("lengths.wm"));
  walks("power " + in("g.wm") + " -p 2 -o " + in("g2.wm"));
  const Outcome swapped = walks("verify " + in("lengths.wm") + " " + in("g.wm"));
  EXPECT_EQ(swapped.code, 1) << swapped.text;
  EXPECT_EQ(swapped.text, "walks: " + in("lengths.wm") +
                              " holds lengths, not a graph: the graph is named first, then the "
                              "result\n");
  const Outcome power = walks("verify " + in("g2.wm") + " " + in("lengths.wm"));
  EXPECT_EQ(power.code, 1) << power.text;
  EXPECT_NE(power.text.find("holds power 2"), std::string::npos) << power.text;
  EXPECT_EQ(walks("verify " + in("g.wm") + " " + in("lengths.wm")).code, 0);
}

TEST_F(Cli, MatrixMarketGoesThereAndBack) {
  walks("convert " + kData + "/paper.txt -o " + in("a.wm"));
  walks("convert " + in("a.wm") + " --to-market -o " + in("a.mtx"));
  const Outcome back = walks("convert " + in("a.mtx") + " -o " + in("b.wm"));
  EXPECT_EQ(back.code, 0) << back.text;
  std::ifstream a(in("a.wm"), std::ios::binary);
  std::ifstream b(in("b.wm"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(a), {}),
            std::string(std::istreambuf_iterator<char>(b), {}));
}

TEST_F(Cli, MatrixMarketSaysWhichOfItsEntriesAreAtLeastThat) {
  walks("generate " + in("g.wm") + " --vertices 20 --probability 0.9");
  walks("power " + in("g.wm") + " -p 4 --cell 1 --saturate -o " + in("p.wm"));
  const Outcome told = walks("convert " + in("p.wm") + " --to-market -o " + in("p.mtx"));
  EXPECT_EQ(told.text, "wrote " + in("p.mtx") + "\n255 in it stands for that or more\n");
  std::ifstream text(in("p.mtx"));
  std::string line;
  std::getline(text, line);
  std::getline(text, line);
  EXPECT_EQ(line, "% saturated: 255 stands for that or more");
  EXPECT_EQ(walks("convert " + in("p.mtx") + " -o " + in("back.wm")).code, 0);
}

TEST_F(Cli, ErrorsAreOneSentence) {
  const Outcome missing = walks("power " + in("none.wm") + " -o " + in("x.wm"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.text, "walks: cannot open " + in("none.wm") + ": No such file or directory\n");
  std::ofstream(in("bad.txt")) << "1 2\n3\n";
  const Outcome bad = walks("power " + in("bad.txt") + " -o " + in("x.wm"));
  EXPECT_EQ(bad.code, 1);
  EXPECT_EQ(bad.text, "walks: " + in("bad.txt") +
                          ", line 2: expected two vertices and perhaps a weight, found 1 fields in "
                          "\"3\"\n");
  for (const char* const graph : {"/dev/stdin", "/dev/zero", "/tmp"}) {
    const Outcome once = walks("convert " + std::string(graph) + " -o " + in("x.wm"),
                               "seq 1001 3100 | paste - - | ");
    EXPECT_EQ(once.code, 1) << once.text;
    EXPECT_NE(once.text.find("is no regular file"), std::string::npos) << once.text;
  }
  const Outcome vertex = walks("between " + kData + "/paper.txt --from 5 --to 1");
  EXPECT_EQ(vertex.text, "walks: there is no vertex 5; this graph's are 1 to 4\n");
  std::ofstream(in("huge.txt")) << "1 1000000000\n";
  const Outcome huge = walks("convert " + in("huge.txt") + " -o " + in("x.wm"));
  EXPECT_EQ(huge.code, 1);
  EXPECT_NE(huge.text.find("needs 1e+09 GB"), std::string::npos) << huge.text;
  const Outcome asymmetric = walks("convert " + kData + "/paper.txt -o " + in("p.wm"));
  EXPECT_EQ(walks("triangles --undirected " + in("p.wm")).code, 1) << asymmetric.text;
  EXPECT_FALSE(std::filesystem::exists(in("x.wm")));
}

TEST_F(Cli, TheGraphIsNotWrittenOver) {
  walks("generate " + in("g.wm") + " --vertices 20");
  for (const char* const command : {"power ", "paths ", "convert --cell 2 "}) {
    const Outcome lost =
        walks(command + in("g.wm") + " -o " + in("../") +
              std::filesystem::path(in("")).parent_path().filename().string() + "/g.wm");
    EXPECT_EQ(lost.code, 1) << command;
    EXPECT_NE(lost.text.find("is the graph itself"), std::string::npos) << lost.text;
  }
  EXPECT_NE(walks("info " + in("g.wm")).text.find("walks of length 1"), std::string::npos);
  // Nor by what lies beside the output while it is made.
  for (const char* const beside : {".partial", ".scratch0", ".import"}) {
    std::filesystem::copy_file(kData + "/paper.txt", in("x.wm") + beside);
    const Outcome lost = walks("power " + in("x.wm") + beside + " -p 4 -o " + in("x.wm"));
    EXPECT_EQ(lost.code, 1) << beside;
    EXPECT_NE(lost.text.find("is the graph itself"), std::string::npos) << lost.text;
    EXPECT_TRUE(std::filesystem::exists(in("x.wm") + beside));
  }
}

TEST_F(Cli, NothingButAFileGivesWayToTheOutput) {
  walks("generate " + in("g.wm") + " --vertices 20");
  std::filesystem::create_directory(in("folder"));
  ASSERT_EQ(mkfifo(in("pipe").c_str(), 0600), 0);
  for (const char* const name : {"folder", "pipe"}) {
    for (const std::string& words :
         {"generate " + in(name) + " --vertices 20", "power " + in("g.wm") + " -o " + in(name)}) {
      const Outcome refused = walks(words);
      EXPECT_EQ(refused.code, 1) << words;
      EXPECT_NE(refused.text.find("no regular file, and stays"), std::string::npos) << refused.text;
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(in("pipe")));
  EXPECT_EQ(walks("power " + in("g.wm") + " -o ''").code, 2);
  EXPECT_EQ(walks("info " + in("g.wm") + " >/dev/full").code, 1);
}

TEST_F(Cli, OneRunAtATimeMakesAnOutput) {
  walks("generate " + in("g.wm") + " --vertices 20");
  const int held = open((in("x.wm") + ".lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  const Outcome second = walks("power " + in("g.wm") + " -o " + in("x.wm"));
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.text.find("another run is making"), std::string::npos) << second.text;
  close(held);
  EXPECT_EQ(walks("power " + in("g.wm") + " -o " + in("x.wm")).code, 0);
  EXPECT_EQ(files(), 2);
}

TEST_F(Cli, FilesThatWalksDidNotMakeStay) {
  walks("generate " + in("g.wm") + " --vertices 20");
  for (const char* const beside : {".lock", ".partial", ".scratch0", ".import"}) {
    const std::string mine = in("poetry") + beside;
    std::ofstream(mine) << "Roses are red";
    const Outcome refused = walks("power " + in("g.wm") + " -o " + in("poetry"));
    EXPECT_EQ(refused.code, 1) << beside;
    EXPECT_NE(refused.text.find(mine + " is no file of walks"), std::string::npos) << refused.text;
    EXPECT_EQ(std::filesystem::file_size(mine), 13U);
    std::filesystem::remove(mine);
  }
  // What killed runs leave: a lock, a matrix without its header, a finished one, a text.
  std::ofstream(in("x.wm.lock")).close();
  std::ofstream(in("x.wm.partial")) << std::string(5000, '\0');
  std::filesystem::copy_file(in("g.wm"), in("x.wm.scratch0"));
  std::ofstream(in("x.wm.import")) << "%%MatrixMarket";
  EXPECT_EQ(walks("power " + in("g.wm") + " -o " + in("x.wm")).code, 0);
}

// ROMIO takes what stands before a colon for a kind of file system.
TEST_F(Cli, AColonInANameIsRefusedWhereTheMpiWouldTakeAnotherFile) {
  walks("generate " + in("g.wm") + " --vertices 20");
  std::filesystem::copy_file(in("g.wm"), in("12:30.wm"));
  const Outcome info = walks("info " + in("12:30.wm"));
  if (std::string(std::getenv("WALKS_BINARY")).ends_with("openmpi")) {
    EXPECT_EQ(info.code, 0) << info.text;
  } else {
    EXPECT_EQ(info.code, 1);
    EXPECT_NE(info.text.find("name the file without a colon"), std::string::npos) << info.text;
  }
}

// A sum of cells of which some stand for more is no exact number, and does not pass for one.
TEST_F(Cli, WhatIsMadeOfCutCellsIsAtLeastThat) {
  walks("generate " + in("g.wm") + " --vertices 40 --probability 1");
  walks("power " + in("g.wm") + " -p 3 --saturate -o " + in("g3.wm"));
  const std::string ends = " --from 1 --to 2";
  EXPECT_EQ(walks("between " + in("g3.wm") + ends).text,
            "at least 255 walks of length 3 from 1 to 2\n");
  const Outcome twice = walks("between " + in("g3.wm") + " -p 2" + ends);
  EXPECT_EQ(twice.text.find("at least 2601000 walks of length 6"), 0U) << twice.text;
  for (const char* const wider : {"power -p 2 --cell 4 --saturate ", "convert --cell 4 "}) {
    const Outcome refused = walks(wider + in("g3.wm") + " -o " + in("x.wm"));
    EXPECT_EQ(refused.code, 1) << wider;
    EXPECT_NE(refused.text.find("is saturated"), std::string::npos) << refused.text;
  }
  EXPECT_EQ(walks("power -p 2 --saturate " + in("g3.wm") + " --verify -o " + in("g6.wm")).code, 0);

  std::ofstream(in("w.txt")) << "1 2 300\n2 3 300\n3 1 300\n";
  walks("convert " + in("w.txt") + " --cell 2 -o " + in("w2.wm"));
  walks("convert " + in("w2.wm") + " --cell 1 --saturate -o " + in("w1.wm"));
  EXPECT_EQ(walks("triangles " + in("w2.wm")).code, 0);
  const Outcome cut = walks("triangles " + in("w1.wm"));
  EXPECT_EQ(cut.code, 1) << cut.text;
  EXPECT_NE(cut.text.find("is saturated"), std::string::npos) << cut.text;
}

// More than it takes to begin, and less than the graph and its product do.
TEST_F(Cli, MemoryThatTheSystemRefusesIsOneSentence) {
  walks("generate " + in("g.wm") + " --vertices 8000 --probability 0");
  const Outcome lacking = walks("power " + in("g.wm") + " --memory 4G --quiet -o " + in("x.wm"),
                                "prlimit --data=134217728");
  EXPECT_EQ(lacking.code, 1);
  EXPECT_EQ(lacking.text, "walks: out of memory; lower --memory or use more ranks\n");
  EXPECT_EQ(files(), 1);
}

TEST_F(Cli, TermSignalLeavesNoFileButTheInput) {
  walks("generate " + in("g.wm") + " --vertices 600");
  const Outcome ended =
      walks("power " + in("g.wm") + " -p 4000000 --saturate --quiet -o " + in("x.wm"),
            "timeout -s TERM 2");
  EXPECT_EQ(ended.code, 124) << "it ended before the signal: " << ended.text;
  EXPECT_EQ(files(), 1);
}

}  // namespace
