// Runs gantry-check-devices.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/machine/topology.hpp>

#include "launcher/check/bandwidths.hpp"

namespace gantry::launcher {

/// Path of the program that measures, beside this one: in a build, and in an installation.
[[nodiscard]] std::string measuring_program();

/// Reads the output of gantry-check-devices line by line. Lines of another form are ignored.
class BandwidthReader {
 public:
  /// `machine` must outlive this.
  explicit BandwidthReader(const machine::Topology& machine);

  /// Reads a line, without its end.
  void read(std::string_view line);
  /// The program ended, or was stopped. `cause`: "it was killed by SIGSEGV", or nothing if it ended
  /// with code 0. Returns the number of the measurement that another run begins with, if there is
  /// one to make.
  std::optional<std::size_t> end(const std::string& cause);
  /// The bandwidths that were read. Call it once, after the last end().
  [[nodiscard]] Bandwidths take() { return std::move(bandwidths_); }

 private:
  void begin(const Json& line);
  void read_devices(const Json& line);
  Bandwidth* find(const Json& line);

  const machine::Topology& machine_;
  Bandwidths bandwidths_;
  std::vector<std::optional<std::size_t>> gpus_;  // index in the topology of the program's devices
  Bandwidth* current_ = nullptr;                  // the measurement that has begun
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  bool has_devices_ = false;
};

/// Measures the GPUs of `machine` in child processes. Each measurement may take `deadline`; what
/// crashes or does not end in time is left out, and the rest is measured by another process.
/// Never initialises CUDA in this process. Call it from the main thread of a process without
/// others.
[[nodiscard]] Bandwidths measure_bandwidths(const std::string& program,
                                            const machine::Topology& machine,
                                            std::chrono::milliseconds deadline);

}  // namespace gantry::launcher
