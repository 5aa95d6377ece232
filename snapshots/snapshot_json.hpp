// Snapshots as JSON text, and the numbers of their call stacks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// Writes everything in `snapshot`: read_json returns an equal one.
void write_json(const Snapshot& snapshot, std::ostream& out);
/// Reads what write_json wrote. `name` is the file's name in errors, which begin with `prefix`.
/// Throws: InvalidArgument if the text is no snapshot; Error if it cannot be read.
[[nodiscard]] Snapshot read_json(std::istream& in, std::string_view name,
                                 std::string_view prefix = {});
/// As read_json, from a file.
[[nodiscard]] Snapshot read_json_file(const std::filesystem::path& path,
                                      std::string_view prefix = {});

/// Returns PyTorch's name of an enumerator, which all file formats use.
[[nodiscard]] std::string_view name_of(TraceAction action);
[[nodiscard]] std::string_view name_of(BlockState state);

/// Numbers of the stacks and frames of one snapshot, which must outlive them. Stack 0 is the empty
/// one.
class SnapshotStacks {
 public:
  explicit SnapshotStacks(const Snapshot& snapshot) {
    for (const SegmentInfo& segment : snapshot.segments) {
      static_cast<void>(number_of(segment.frames));
      for (const BlockInfo& block : segment.blocks) static_cast<void>(number_of(block.frames));
    }
    for (const auto& trace : snapshot.device_traces) {
      for (const TraceEntry& entry : trace) static_cast<void>(number_of(entry.frames));
    }
  }

  [[nodiscard]] std::uint32_t number_of(const Frames& frames) {
    if (frames.empty()) return 0;
    const auto [known, is_new] = by_identity_.try_emplace(frames.identity(), 0);
    if (is_new) known->second = number_of_content(frames);
    return known->second;
  }

  /// Frame numbers of each stack.
  [[nodiscard]] const std::vector<std::vector<std::uint32_t>>& stacks() const { return stacks_; }
  [[nodiscard]] const std::vector<const Frame*>& frames() const { return frames_; }

 private:
  std::uint32_t number_of_content(const Frames& frames) {
    std::vector<std::uint32_t> numbers;
    for (const Frame& frame : frames) {
      const auto next = static_cast<std::uint32_t>(frames_.size());
      const auto [known, is_new] = frame_numbers_.try_emplace(
          std::tie(frame.name, frame.filename, frame.line, frame.is_internal), next);
      if (is_new) frames_.push_back(&frame);
      numbers.push_back(known->second);
    }
    const auto next = static_cast<std::uint32_t>(stacks_.size());
    const auto [known, is_new] = stack_numbers_.try_emplace(numbers, next);
    if (is_new) stacks_.push_back(std::move(numbers));
    return known->second;
  }

  std::unordered_map<const void*, std::uint32_t> by_identity_;
  std::map<std::tuple<std::string, std::string, int, bool>, std::uint32_t> frame_numbers_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> stack_numbers_{{{}, 0}};
  std::vector<const Frame*> frames_;
  std::vector<std::vector<std::uint32_t>> stacks_{{}};
};

}  // namespace gantry::memory
