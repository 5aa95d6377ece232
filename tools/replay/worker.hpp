// Measures a backend in a process of its own.
#pragma once

#include <string>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "tools/replay/options.hpp"
#include "tools/replay/replay.hpp"

namespace gantry::replay {

/// A file in the temporary folder that goes with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& suffix);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return file_.get(); }

 private:
  std::string path_;
  UniqueFd file_;
};

/// Runs this program again with `dump` and the one backend, so that it finds the device as the
/// others do and the library with no other backend chosen. A child that fails gives a result whose
/// error says how. Throws: Error if no process can be started.
[[nodiscard]] ReplayResult measure_in_child(const Options& options, const std::string& dump,
                                            const std::string& backend);

}  // namespace gantry::replay
