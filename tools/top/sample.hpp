// One look at the machine: its devices and this user's running jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/nvml/nvml.hpp"

namespace gantry::top {

/// A process with a context on a device. The process id is an id of the host.
struct DeviceProcess {
  unsigned pid = 0;
  std::string name;  ///< empty if it is unknown
  std::optional<std::uint64_t> used_bytes;
};

/// The state of a device; what is unknown is none.
struct DeviceState {
  std::string index;  ///< in PCI order: "0", or "0/1" for a MIG instance; empty if it is unknown
  std::string name;
  std::string uuid;
  bool is_simulated = false;
  std::optional<unsigned> utilization;   ///< percent
  std::optional<unsigned> memory_usage;  ///< percent
  std::optional<std::uint64_t> used_bytes;
  std::optional<std::uint64_t> total_bytes;
  std::optional<unsigned> temperature;  ///< degrees Celsius
  std::optional<unsigned> power;        ///< milliwatts
  std::optional<unsigned> clock;        ///< MHz
  std::optional<std::vector<DeviceProcess>> processes;
};

/// The call that a rank is in, else its newest one.
struct CallState {
  std::string group;
  std::uint64_t number = 0;
  std::string text;       ///< "all_reduce sum f32[1000]"
  std::string algorithm;  ///< "one_shot"
  std::int64_t bytes = 0;
  std::int64_t age_ns = 0;  ///< since the host made the call
  bool is_under_way = false;
};

/// The state of a rank.
struct RankState {
  int rank = 0;  ///< in glaunch's job, else in the job's largest group
  int pid = 0;
  std::uint64_t start_time = 0;
  std::string host;
  std::string state;  ///< "alive", "stopped", "ended", "left", "aborted", "unknown"
  bool is_alive = false;
  std::string device_name;
  std::string uuid;                         ///< of its device; empty if it is unknown
  std::optional<std::string> device_index;  ///< of its device in Sample::devices
  std::optional<std::int64_t> allocated_bytes;
  std::optional<std::int64_t> reserved_bytes;
  std::optional<CallState> call;
};

/// A job with a living rank.
struct JobState {
  std::string job;              ///< empty for ranks that were not started as a job
  std::int64_t created_ns = 0;  ///< of its first group, since 1970
  std::vector<RankState> ranks;
};

struct Sample {
  std::int64_t time_ns = 0;  ///< since 1970
  std::string host;
  std::vector<DeviceState> devices;
  std::vector<JobState> jobs;
  std::vector<std::string> notes;  ///< what could not be read, and why
};

/// Devices that NVML shows, in PCI order, with MIG instances in place of the GPU that they divide.
/// `has_names`: process ids of the host name the same processes here.
[[nodiscard]] std::vector<DeviceState> read_devices(const machine::Nvml& nvml, bool has_names,
                                                    std::vector<std::string>& notes);

/// This user's running jobs, newest first, from the flight folder.
[[nodiscard]] std::vector<JobState> read_jobs(std::vector<std::string>& notes);

/// Gives ranks the index of their device. Adds devices of ranks that are not in `sample`.
void join_ranks_to_devices(Sample& sample);

/// All of the above.
[[nodiscard]] Sample take_sample(const machine::Nvml& nvml);

}  // namespace gantry::top
