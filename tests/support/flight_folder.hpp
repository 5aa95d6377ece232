// A folder of its own for the flight files of a test.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

/// Flight files of this scope's groups, here and in programs that it starts, go to a folder of its
/// own, which it removes.
class FlightFolder {
 public:
  FlightFolder() { setenv("GANTRY_FLIGHT_DIR", path_.c_str(), 1); }
  ~FlightFolder() { unsetenv("GANTRY_FLIGHT_DIR"); }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
};

}  // namespace gantry::testing
