// The findings of a replay, for people and for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/replay/allocation_sequence.hpp"
#include "tools/replay/replay.hpp"

namespace gantry::replay {

/// Everything that the outputs say about one invocation.
struct Report {
  std::string sequence;
  std::uint64_t operations = 0;
  std::uint16_t streams = 1;
  std::uint16_t threads = 1;
  std::uint64_t unmatched_frees = 0;
  std::uint64_t incomplete_lines = 0;
  SequenceFacts facts;
  std::string device;  ///< "NVIDIA H200 (cuda:0, 140 GiB)"
  std::optional<std::uint64_t> limit_bytes;
  int repeat = 0;
  std::vector<ReplayResult> results;
};

/// An aligned table with a head that describes the work and a last line that sums it up.
[[nodiscard]] std::string report_text(const Report& report);
/// The last line of report_text.
[[nodiscard]] std::string summary(const Report& report);
[[nodiscard]] std::string report_json(const Report& report);
/// The results of report_json. Throws: InvalidArgument for other text.
[[nodiscard]] std::vector<ReplayResult> results_from_json(std::string_view text);

}  // namespace gantry::replay
