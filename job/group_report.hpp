// The progress of a group's ranks, read from its flight file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/flight_folder.hpp"

namespace gantry::flight {

/// Whether a rank's process is there.
enum class ProcessState { absent, alive, stopped, ended, unknown };

/// How far a rank is with the calls of one queue.
struct QueueReport {
  std::uint64_t enqueued = 0;  ///< number of the newest call
  Progress progress = {};
  /// The call under way, else the newest.
  std::optional<Record> current = {};
};

struct RankReport {
  int rank = 0;
  std::optional<int> job_rank;  ///< in glaunch's job
  int pid = 0;
  std::uint64_t start_time = 0;  ///< of the process, see ProcessStamp
  std::string host;
  std::string device;
  std::string uuid;  ///< of the device; empty if it is unknown
  std::optional<std::int64_t> allocated_bytes, reserved_bytes;  ///< of the device's memory
  ProcessState process = ProcessState::absent;
  State state = State::running;
  std::optional<std::int64_t> ended_ns_ago = {};  ///< if it was seen
  std::array<QueueReport, kQueues> queues;
  std::vector<Record> calls;  ///< newest first

  [[nodiscard]] bool is_alive() const {
    return process == ProcessState::alive || process == ProcessState::stopped ||
           process == ProcessState::unknown;
  }
  [[nodiscard]] const QueueReport& queue(Queue which) const {
    return queues[static_cast<std::size_t>(which)];
  }
};

struct GroupReport {
  std::string path;
  std::string job;
  std::string group;
  std::int64_t created_ns = 0;  ///< since 1970
  std::int64_t now_ns = 0;      ///< when it was looked at; 0: the file is of another boot
  std::vector<RankReport> ranks;
  std::vector<std::string> diagnosis;
};

/// The progress of a group, without a diagnosis.
[[nodiscard]] GroupReport report_group(const OpenFile& file);

/// Name of the algorithm that runs a call; "?" if the file does not tell.
[[nodiscard]] std::string algorithm_of(const View& view, const Record& record);

[[nodiscard]] std::string_view name(ProcessState state);
[[nodiscard]] std::string_view name(State state);

/// "250 ms", "3.2 s", "7 min", "2 h".
[[nodiscard]] std::string duration_text(std::int64_t ns);

}  // namespace gantry::flight
