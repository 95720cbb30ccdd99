// `nvio calibrate` and `nvio predict`, and the picture of what a job did.
#pragma once

#include <string>

#include "../predict/calibrate.h"

namespace nvio {

struct PredictOptions {
  std::string trace;        // a folder of nvio record, or a Darshan log
  std::string calibration;  // a file of nvio calibrate
  std::string capacity;     // of the store; empty: as a run here would have
  std::string store;
  bool json = false;
};

// Writes the calibration to `output`; return the exit status.
int calibrate_command(CalibrateOptions options, const std::string& output);
int predict_command(const PredictOptions& options);
// Draws a job's calls into the file `picture`.
int picture_command(const std::string& trace, const std::string& picture);

}  // namespace nvio
