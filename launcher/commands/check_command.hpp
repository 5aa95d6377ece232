#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gantry/device/topology.hpp>

#include "launcher/commands/topo_request.hpp"

namespace gantry::launcher {

/// How much a finding matters.
enum class Severity {
  fine,     ///< looked at, nothing found
  note,     ///< good to know
  warning,  ///< jobs run, but slower or less safely
  error,    ///< jobs will not run
};

/// Name of a severity: "ok", "note", "warning" or "error".
[[nodiscard]] std::string_view name(Severity severity);

/// One result of `glaunch check`.
struct Finding {
  Severity severity = Severity::fine;
  std::string subject;  ///< "driver", "GPU 3", "/dev/shm"
  std::string text;     ///< one sentence without its end
  std::string remedy;   ///< what to do; empty for Severity::fine
};

/// What NVML tells of the state of a GPU, as far as it does.
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

/// What is looked at before a job.
struct CheckInput {
  Topology machine;
  std::vector<GpuState> states;  ///< for each GPU; empty on simulated devices
  Limits limits;
  std::string visible_problem;  ///< of CUDA_VISIBLE_DEVICES; empty if there is none
};

/// The findings, most important first. A pure function.
[[nodiscard]] std::vector<Finding> find_problems(const CheckInput& input,
                                                 const CheckRequest& request);

/// Looks at this machine. `options` say where.
[[nodiscard]] CheckInput look_for_check(const TopologyOptions& options);

/// The findings as text or JSON.
[[nodiscard]] std::string describe_findings(const std::vector<Finding>& findings, bool json);

/// 0: at most notes; 1: a warning; 2: an error.
[[nodiscard]] int exit_code(const std::vector<Finding>& findings);

}  // namespace gantry::launcher
