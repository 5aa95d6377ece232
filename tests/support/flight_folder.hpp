// A folder of its own for the flight files of a test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

/// Flight files of this scope's groups, here and in programs that it starts, go to a folder of its
/// own, which it removes. It is in memory where the machine has such a folder: GPUs need that.
class FlightFolder {
 public:
  FlightFolder() { setenv("GANTRY_FLIGHT_DIR", path_.c_str(), 1); }
  ~FlightFolder() { unsetenv("GANTRY_FLIGHT_DIR"); }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  static std::filesystem::path parent() {
    const std::filesystem::path memory = "/dev/shm";
    return access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
  }

  TemporaryFolder folder_{parent()};
  std::string path_ = folder_.path().string();
};

}  // namespace gantry::testing
