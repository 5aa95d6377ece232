// The progress of the ranks of this user's jobs, from their flight files.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "job/flight_folder.hpp"
#include "launcher/dump_request.hpp"

namespace gantry {
class Json;
}  // namespace gantry

namespace gantry::launcher {

/// Whether a rank's process is there.
enum class ProcessState { absent, alive, stopped, ended, unknown };

/// How far a rank is with the calls of one lane.
struct LaneReport {
  std::uint64_t enqueued = 0;  ///< number of the newest call
  flight::Progress progress = {};
  /// The call under way, else the newest.
  std::optional<flight::Record> current = {};
};

struct RankReport {
  int rank = 0;
  int pid = 0;
  std::string host;
  std::string device;
  ProcessState process = ProcessState::absent;
  flight::State state = flight::State::running;
  std::optional<std::int64_t> ended_ns_ago = {};  ///< if it was seen
  std::array<LaneReport, flight::kLanes> lanes;
  std::vector<flight::Record> calls;  ///< newest first

  [[nodiscard]] bool is_alive() const {
    return process == ProcessState::alive || process == ProcessState::stopped ||
           process == ProcessState::unknown;
  }
  [[nodiscard]] const LaneReport& lane(flight::Lane which) const {
    return lanes[static_cast<std::size_t>(which)];
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

/// The flight files that `target` names: a job, a process id, a file (with a slash), or all of this
/// user if empty; newest first. Throws: InvalidArgument if it names none.
[[nodiscard]] std::vector<flight::OpenFile> find_flights(const std::string& target);

/// The progress of a group, and its diagnosis.
[[nodiscard]] GroupReport look_at(const flight::OpenFile& file);
/// Waiting ranks, ranks with different calls, lost ranks; the most significant first. Empty if
/// nothing is amiss.
[[nodiscard]] std::vector<std::string> findings(const flight::View& view,
                                                const std::vector<RankReport>& ranks);
/// What the calls of a group's ranks mean: the findings, or that there are none.
[[nodiscard]] std::vector<std::string> diagnose(const flight::View& view,
                                                const std::vector<RankReport>& ranks);

/// What is amiss in the groups of the job `job`, for the report of its failure: of groups that
/// broke if there are such; the most telling sentence of each, at most some.
[[nodiscard]] std::vector<std::string> diagnose_job(const std::string& job);

/// For programs; `view` as below.
[[nodiscard]] Json to_json(const GroupReport& report, const flight::View& view);
/// For people; `view` is the one that `report` was made from.
[[nodiscard]] std::string describe_group(const GroupReport& report, const flight::View& view);

/// What `glaunch dump` prints. Without a target these are the groups with a living rank and those
/// of the newest job that broke. Throws: InvalidArgument.
[[nodiscard]] std::string dump(const DumpRequest& request);

/// Prints the dump again whenever a rank got further, or each time if `redraws`. Looks every
/// `interval`. Returns when the target's ranks have ended; without a target it does not return.
/// Throws: InvalidArgument; what `print` throws.
void follow_dump(const DumpRequest& request, std::chrono::milliseconds interval, bool redraws,
                 const std::function<void(const std::string& text)>& print);

}  // namespace gantry::launcher
