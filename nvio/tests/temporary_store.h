// Settings of a job with a store of its own, and a path for its file; what lies at both goes with
// the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "../settings/settings.h"

namespace nvio {

class TemporaryStore {
 protected:
  explicit TemporaryStore(const std::string& session, const std::string& beneath = "/tmp")
      : root_(beneath + "/nvio-" + session + "-XXXXXX") {
    mkdtemp(root_.data());
    path_ = root_ + "/file";
    settings_.store = root_ + "/store";
    settings_.session = session;
    std::filesystem::create_directory(settings_.store);
  }
  TemporaryStore(const TemporaryStore&) = delete;
  TemporaryStore& operator=(const TemporaryStore&) = delete;
  ~TemporaryStore() { std::filesystem::remove_all(root_); }

  std::string root_;
  std::string path_;
  Settings settings_;
};

}  // namespace nvio
