// The state of the machine before a job, and what is wrong with it.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gantry/machine/topology.hpp>

#include "launcher/check/finding.hpp"

namespace gantry::launcher {

/// The job that is to run, and the checks that are asked for.
struct CheckRequest {
  std::optional<int> ranks;  ///< of the job that is to run; none: one per GPU
  bool json = false;
  bool full = false;                           ///< measures bandwidths, too
  std::chrono::milliseconds deadline{30'000};  ///< of one measurement
};

/// The state of a GPU, as far as NVML tells it.
struct GpuState {
  std::vector<unsigned> processes;  ///< process ids
  std::optional<std::uint64_t> throttle_reasons;
  std::optional<unsigned> temperature;
  bool is_prohibited = false;  ///< compute mode
  bool is_exclusive = false;   ///< compute mode
  bool needs_reset = false;    ///< for replaced memory rows or pages
  bool has_failed_rows = false;
};

/// Limits of this process.
struct Limits {
  rlim_t open_files = RLIM_INFINITY;     ///< the hard limit
  rlim_t locked_memory = RLIM_INFINITY;  ///< the soft limit
};

/// The facts that are looked at before a job.
struct CheckInput {
  machine::Topology machine;
  std::vector<GpuState> states;  ///< for each GPU; empty on simulated devices
  Limits limits;
  std::string visible_problem;  ///< of CUDA_VISIBLE_DEVICES; empty if there is none
};

/// The findings, most important first. A pure function.
[[nodiscard]] std::vector<Finding> find_problems(const CheckInput& input,
                                                 const CheckRequest& request);

/// Looks at this machine. `options` say where.
[[nodiscard]] CheckInput look_for_check(const machine::TopologyOptions& options);

/// The output of `glaunch check`, and its exit code.
struct CheckReport {
  std::string text;
  int exit_code = 0;
};

/// Looks at this machine and, if `request` says so, measures its devices in another process.
[[nodiscard]] CheckReport check_machine(const machine::TopologyOptions& options,
                                        const CheckRequest& request);

}  // namespace gantry::launcher
