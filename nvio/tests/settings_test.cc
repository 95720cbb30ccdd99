#include "../settings/settings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <map>

#include "../settings/launcher.h"

namespace nvio {
namespace {

Lookup from(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

FileSettings hinted(const FileSettings& base, std::map<std::string, std::string> values) {
  std::vector<std::string> complaints;
  return apply_hints(base, from(std::move(values)), complaints);
}

TEST(Settings, HintsWinOverTheEnvironmentOverTheFile) {
  const Settings settings = read_settings(from({{"NVIO_SYNC", "file"}}),
                                          "sync = store\nclose = durable # for the archive\n");
  EXPECT_TRUE(settings.complaints.empty());
  EXPECT_EQ(settings.file.sync, SyncTo::file);
  EXPECT_EQ(settings.file.close, Close::durable);
  EXPECT_EQ(hinted(settings.file, {{"nvio_sync", "store"}}).sync, SyncTo::store);
}

TEST(Settings, ComplainsOfWhatItDoesNotKnowAndKeepsTheDefault) {
  const Settings settings = read_settings(from({{"NVIO_ADMIT", "perhaps"}}),
                                          "colour = blue\nno equals sign\nsyn = file\n");
  ASSERT_EQ(settings.complaints.size(), 2U);
  EXPECT_EQ(settings.complaints[1],
            "NVIO_ADMIT: \"perhaps\" is no value for admit, which takes auto, always or never");
  ASSERT_EQ(settings.unknown.size(), 2U);
  EXPECT_EQ(settings.unknown[1],
            "configuration file, line 3: there is no setting \"syn\" (did you mean sync?)");
  EXPECT_EQ(settings.file.admit, Admit::automatic);
}

TEST(Settings, NamesThatMeanNothingAreToldFromThoseThatDo) {
  EXPECT_EQ(about_variable("NVIO_STORE"), "");
  EXPECT_EQ(about_variable("NVIO_CONFIG"), "");
  EXPECT_EQ(about_variable("NVIO_CAPACTIY"),
            "there is no variable NVIO_CAPACTIY (did you mean NVIO_CAPACITY?)");
  EXPECT_EQ(about_variable("NVIO_TEMPERATURE"), "there is no variable NVIO_TEMPERATURE");
  EXPECT_EQ(about_hint("nvio_admit"), "");
  EXPECT_EQ(about_hint("striping_unit"), "") << "another's hint";
  EXPECT_EQ(about_hint("nvio_bypas_size"),
            "there is no hint nvio_bypas_size (did you mean nvio_bypass_size?)");
  EXPECT_NE(about_hint("nvio_store").find("NVIO_STORE"), std::string::npos);
  EXPECT_EQ(about_value("capacity", "4G"), "");
  EXPECT_NE(about_value("capacity", "much"), "");
}

TEST(Settings, SwitchesAreTheSameWordsInEveryPlace) {
  const Settings off = read_settings(
      from({{"NVIO_DISABLE", "off"}, {"NVIO_ONE_NODE", "no"}, {"NVIO_QUIET", "false"}}), "");
  EXPECT_TRUE(off.complaints.empty());
  EXPECT_FALSE(off.disabled || off.one_node || off.quiet);
  const Settings on = read_settings(from({}), "disable = on\none_node = yes\nquiet = true\n");
  EXPECT_TRUE(on.complaints.empty());
  EXPECT_TRUE(on.disabled && on.one_node && on.quiet);
  EXPECT_EQ(read_settings(from({{"NVIO_DISABLE", "perhaps"}}), "").complaints.size(), 1U);
}

TEST(Settings, ASilenceIsNoShorterThanTheKernelCanTell) {
  EXPECT_EQ(read_settings(from({}), "").silence, 60U);
  EXPECT_EQ(read_settings(from({{"NVIO_SILENCE", "12"}}), "").silence, 12U);
  EXPECT_NE(about_value("silence", "11"), "");
}

TEST(Settings, ARankStartedThroughScriptsIsOfTheJobOfItsLauncher) {
  EXPECT_EQ(launching_process(getpid()), getpid());
  const char* scripts = "PMI_RANK=1 sh -c 'sh -c \"echo \\$\\$; read end; :\"; :'; :";
  std::array<int, 2> input{};
  std::array<int, 2> output{};
  ASSERT_EQ(pipe2(input.data(), O_CLOEXEC) | pipe2(output.data(), O_CLOEXEC), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", scripts, nullptr);
    _exit(127);
  }
  std::array<char, 16> rank{};
  EXPECT_GT(::read(output[0], rank.data(), rank.size() - 1), 0);
  EXPECT_NE(std::atoi(rank.data()), launcher);
  EXPECT_EQ(launching_process(std::atoi(rank.data())), launcher);
  for (const int fd : {input[0], input[1], output[0], output[1]}) ::close(fd);
  waitpid(launcher, nullptr, 0);
}

TEST(Settings, RefusesASessionNameThatLeavesItsFolder) {
  const Settings settings = read_settings(from({{"NVIO_SESSION", "../../etc"}}), "");
  EXPECT_EQ(settings.session, "");
  EXPECT_EQ(settings.complaints.size(), 1U);
}

TEST(Settings, IgnoresHintsItDoesNotUnderstandAsMpiSaysAndTellsOfThem) {
  std::vector<std::string> complaints;
  EXPECT_EQ(apply_hints({}, from({{"nvio_close", "later"}}), complaints).close, Close::visible);
  ASSERT_EQ(complaints.size(), 1U);
  EXPECT_EQ(complaints[0],
            "hint nvio_close: \"later\" is no value for close, which takes visible or durable");
}

TEST(Settings, AStripeIsAskedForByItsOwnNameOrByMpis) {
  const Settings settings = read_settings(from({{"NVIO_STRIPE", "4M"}}), "stripe = 2M\n");
  EXPECT_TRUE(settings.complaints.empty());
  EXPECT_EQ(settings.file.stripe, 4U << 20);
  const FileSettings changed =
      hinted(settings.file, {{"nvio_stripe", "auto"}, {"striping_unit", "8388608"}});
  EXPECT_EQ(changed.stripe, 0U);
  EXPECT_EQ(changed.striping_unit, 8U << 20);
  for (const char* refused : {"0", "5G", "wide"}) {
    EXPECT_EQ(read_settings(from({{"NVIO_STRIPE", refused}}), "").complaints.size(), 1U) << refused;
    EXPECT_EQ(hinted({}, {{"striping_unit", refused}}).striping_unit, 0U) << refused;
  }
}

TEST(Settings, ASimulatedStoreIsAsSlowAsThePapersUnlessItIsSaid) {
  Settings settings = read_settings(from({{"NVIO_STORE_KIND", "simulated"}}), "");
  EXPECT_EQ(settings.kind, StoreKind::simulated);
  EXPECT_EQ(settings.simulated.access_ns, 2000U);
  EXPECT_EQ(settings.simulated.flush_ns, 600U);
  EXPECT_EQ(settings.simulated.bytes_per_second, 9'500'000'000U);
  settings = read_settings(from({{"NVIO_SIMULATED_ACCESS", "0"},
                                 {"NVIO_SIMULATED_FLUSH", "1000000"},
                                 {"NVIO_SIMULATED_BANDWIDTH", "1G"}}),
                           "");
  EXPECT_TRUE(settings.complaints.empty());
  EXPECT_EQ(settings.simulated.access_ns, 0U);
  EXPECT_EQ(settings.simulated.flush_ns, 1'000'000U);
  EXPECT_EQ(settings.simulated.bytes_per_second, 1U << 30);
  EXPECT_EQ(about_value("simulated_access", "1000001"),
            "\"1000001\" is no value for simulated_access, which takes nanoseconds, 0 to 1000000");
  EXPECT_FALSE(about_value("simulated_bandwidth", "0").empty());
}

TEST(Sizes, AreReadWithTheirUnits) {
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size(" 64K "), 65536U);
  EXPECT_EQ(parse_size("1 MiB"), 1048576U);
  EXPECT_EQ(parse_size("3g"), 3ULL << 30);
  EXPECT_FALSE(parse_size(""));
  EXPECT_FALSE(parse_size("-1"));
  EXPECT_FALSE(parse_size("12x"));
  EXPECT_FALSE(parse_size("99999999999999999999"));
  EXPECT_FALSE(parse_size("9999999t"));
}

TEST(Launcher, JobsOfOneSessionHaveNamesOfTheirOwn) {
  const std::string one = name_beside_others("run-1.2");
  EXPECT_NE(one, name_beside_others("run-1.2"));
  EXPECT_EQ(without_job(one), "run-1.2");
  EXPECT_EQ(without_job(one + ".node12"), "run-1.2");
  EXPECT_EQ(without_job("run-1.2.node0"), "run-1.2");
  EXPECT_EQ(without_job("slurm-4711.0"), "slurm-4711.0");
}

}  // namespace
}  // namespace nvio
