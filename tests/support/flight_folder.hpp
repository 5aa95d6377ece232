// A folder of its own for the flight files of a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace gantry::testing {

/// Flight files of this scope's groups, here and in programs that it starts, go to a folder of its
/// own, which it removes.
class FlightFolder {
 public:
  FlightFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "flight-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
    setenv("GANTRY_FLIGHT_DIR", path_.c_str(), 1);
  }
  ~FlightFolder() {
    unsetenv("GANTRY_FLIGHT_DIR");
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gantry::testing
