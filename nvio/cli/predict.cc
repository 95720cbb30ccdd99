#include "predict.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "../darshan/job.h"
#include "../picture/heat_map.h"
#include "../predict/advice.h"

namespace nvio {
namespace {

void show(double share, const std::string& what) {
  constexpr int kWidth = 30;
  const int full = static_cast<int>(share * kWidth);
  std::fprintf(stderr, "\r[%.*s%*s] %3.0f %%  %-28s%s", full, "##############################",
               kWidth - full, "", share * 100, what.c_str(), share == 1 ? "\n" : "");
}

// What is ignored on purpose stays so: nohup nvio calibrate ...
void on_stop_signals(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

JobTrace read_any(const std::string& path) {
  std::error_code unreadable;
  return std::filesystem::is_directory(path, unreadable) ? read_job(path) : read_darshan(path);
}

}  // namespace

int calibrate_command(CalibrateOptions options, const std::string& output) {
  if (options.store.empty()) options.store = read_settings_of_process().store;
  on_stop_signals([](int) { stop_calibration(); });
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is then told, and nothing left behind
  Calibration calibration;
  std::string problem;
  const bool visible = isatty(STDERR_FILENO) != 0;
  const Progress progress = [visible](double share, const std::string& what) {
    if (visible) show(share, what);
  };
  if (!calibrate(options, progress, calibration, problem)) {
    std::fprintf(stderr, "%snvio calibrate: %s\n", visible ? "\n" : "", problem.c_str());
    return 1;
  }
  if (!write_calibration(calibration, output)) {
    std::fprintf(stderr, "nvio calibrate: cannot write %s\n", output.c_str());
    return 1;
  }
  std::fprintf(
      stderr, "nvio calibrate: %s, store %s: written to %s; next: nvio predict TRACE -c %s\n",
      calibration.file_system.c_str(), calibration.store.c_str(), output.c_str(), output.c_str());
  return 0;
}

int predict_command(const PredictOptions& options) {
  on_stop_signals([](int) { stop_replay(); });
  std::ifstream file(options.calibration);
  if (!file) {
    std::fprintf(stderr,
                 "nvio predict: cannot read %s: make it by `nvio calibrate DIR`, with DIR where "
                 "the job's files are\n",
                 options.calibration.c_str());
    return 1;
  }
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  Calibration calibration;
  std::string problem;
  if (!parse_calibration(content, calibration, problem)) {
    std::fprintf(stderr, "nvio predict: %s: %s\n", options.calibration.c_str(), problem.c_str());
    return 1;
  }
  for (const auto& [name, value] :
       {std::pair("capacity", options.capacity), std::pair("store", options.store)}) {
    if (value.empty()) continue;
    problem = put_into_environment(std::string("--") + name + " " + value, name, value);
    if (problem.empty()) continue;
    std::fprintf(stderr, "nvio predict: %s\n", problem.c_str());
    return 2;
  }
  const Settings settings = read_settings_of_process();
  for (const std::string& complaint : settings.complaints) {
    std::fprintf(stderr, "nvio predict: %s\n", complaint.c_str());
  }
  if (!settings.complaints.empty()) return 2;
  const Prediction prediction = predict(read_any(options.trace), calibration, settings);
  if (!prediction.problem.empty()) {
    std::fprintf(stderr, "nvio predict: no prediction: %s\n", prediction.problem.c_str());
    return 1;
  }
  std::fputs((options.json ? as_json(prediction) : as_text(prediction)).c_str(), stdout);
  return 0;
}

int picture_command(const std::string& trace, const std::string& picture) {
  std::error_code absent;
  if (std::filesystem::equivalent(trace, picture, absent)) {
    std::fprintf(stderr, "nvio inspect: %s is what is to be drawn, and stays\n", picture.c_str());
    return 1;
  }
  const JobTrace job = read_any(trace);
  // What speaks against a prediction need not speak against a picture.
  if (job.ranks.empty()) {
    std::fprintf(stderr, "nvio inspect: no picture: %s\n", job.problem.c_str());
    return 1;
  }
  std::ofstream file(picture);
  file << heat_map(job, trace);
  file.close();
  if (!file) std::fprintf(stderr, "nvio inspect: cannot write %s\n", picture.c_str());
  return file ? 0 : 1;
}

}  // namespace nvio
