#include "launcher/check/machine_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "launcher/check/bandwidth_findings.hpp"
#include "launcher/check/bandwidth_run.hpp"
#include "launcher/run/plan/device_inventory.hpp"
#include "launcher/topo/topo_text.hpp"
#include "machine/nvml/nvml.hpp"

namespace gantry::launcher {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kShmPerRank = 32 * kMiB;  // FIFOs and flight records of ranks, and NCCL's
// Bits of NVML for clocks that something beside idleness holds down.
constexpr std::uint64_t kHardwareSlowdown = 0x8;
constexpr std::uint64_t kSoftwareThermal = 0x20;
constexpr std::uint64_t kHardwareThermal = 0x40;
constexpr std::uint64_t kPowerBrake = 0x80;

class Check {
 public:
  Check(const CheckInput& input, const CheckRequest& request)
      : machine_(input.machine),
        input_(input),
        ranks_(request.ranks.value_or(std::max(1, static_cast<int>(input.machine.gpus.size())))) {}

  std::vector<Finding> run() {
    check_devices();
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) check_gpu(i);
    check_peers();
    check_places();
    check_processors();
    check_shared_memory();
    check_limits();
    for (const std::string& warning : machine_.warnings) {
      add(Severity::warning, "topology", warning, "look at glaunch topo");
    }
    sort_findings(findings_);
    return std::move(findings_);
  }

 private:
  void add(Severity severity, std::string subject, std::string text, std::string remedy) {
    findings_.push_back({severity, std::move(subject), std::move(text), std::move(remedy)});
  }
  void fine(std::string subject, std::string text) {
    add(Severity::fine, std::move(subject), std::move(text), "");
  }

  void check_devices() {
    if (!input_.visible_problem.empty()) {
      add(Severity::error, "visible devices", input_.visible_problem,
          "correct CUDA_VISIBLE_DEVICES or unset it");
      return;
    }
    if (machine_.gpus.empty()) {
      add(Severity::error, "devices", fmt::format("no device is visible: {}", machine_.why_no_gpu),
          "install the driver, or set GANTRY_SIM_DEVICES=N for simulated devices");
      return;
    }
    std::string text =
        fmt::format("{} visible by {}", machine_.gpus.size(), machine::name(machine_.gpu_source));
    if (machine_.driver_version) text += fmt::format(", driver {}", *machine_.driver_version);
    fine("devices", std::move(text));
  }

  void check_gpu(std::size_t index) {
    const machine::Topology::Gpu& gpu = machine_.gpus[index];
    const std::string subject = fmt::format("GPU {}", index);
    const std::size_t before = findings_.size();
    if (index < input_.states.size()) check_state(subject, gpu, input_.states[index]);
    if (gpu.pcie_width && gpu.max_pcie_width && *gpu.pcie_width < *gpu.max_pcie_width) {
      add(Severity::warning, subject,
          fmt::format("PCIe has {} of {} lanes", *gpu.pcie_width, *gpu.max_pcie_width),
          "reseat the card, or look for a slot with more lanes");
    }
    if (gpu.inactive_nvlinks && *gpu.inactive_nvlinks > 0 && gpu.nvlinks && !gpu.nvlinks->empty()) {
      add(Severity::warning, subject, fmt::format("{} NVLinks are inactive", *gpu.inactive_nvlinks),
          "see nvidia-smi nvlink -s; on NVSwitch machines, whether the fabric manager runs");
    }
    if (findings_.size() == before) fine(subject, gpu.name);
  }

  void check_state(const std::string& subject, const machine::Topology::Gpu& gpu,
                   const GpuState& state) {
    if (state.is_prohibited) {
      add(Severity::error, subject, "its compute mode is prohibited", "nvidia-smi -c DEFAULT");
    }
    if (state.is_exclusive) {
      add(Severity::warning, subject, "its compute mode admits one process",
          "nvidia-smi -c DEFAULT, if ranks share GPUs");
    }
    if (state.has_failed_rows) {
      add(Severity::error, subject, "a row of its memory could not be replaced",
          "have the GPU exchanged");
    }
    if (state.needs_reset) {
      add(Severity::warning, subject, "it waits for a reset to replace bad memory",
          "nvidia-smi --gpu-reset when the GPU is idle");
    }
    if (!state.processes.empty()) {
      add(Severity::warning, subject,
          fmt::format("in use by {} ({})",
                      state.processes.size() == 1 ? "a process" : "several processes",
                      fmt::join(state.processes, ", ")),
          "wait for it, or use glaunch --gpus idle:N");
    } else if (gpu.memory_bytes && gpu.used_memory_bytes &&
               *gpu.used_memory_bytes > *gpu.memory_bytes / 20) {
      add(Severity::warning, subject, fmt::format("{}, though no process is seen", use_text(gpu)),
          "look for processes of other containers, or use glaunch --gpus idle:N");
    }
    const std::uint64_t reasons = state.throttle_reasons.value_or(0);
    if ((reasons & (kSoftwareThermal | kHardwareThermal)) != 0) {
      add(Severity::warning, subject,
          fmt::format("its clocks are lowered for heat{}",
                      state.temperature ? fmt::format(", at {} °C", *state.temperature) : ""),
          "improve the cooling");
    }
    if ((reasons & (kHardwareSlowdown | kPowerBrake)) != 0) {
      add(Severity::warning, subject, "its clocks are lowered by the hardware",
          "see nvidia-smi -q -d PERFORMANCE; look at the power supply");
    }
  }

  void check_peers() {
    std::vector<std::string> pairs;
    bool is_known = false;
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
      for (std::size_t j = i + 1; j < machine_.gpus.size(); ++j) {
        const machine::Topology::Link& link = machine_.links[i][j];
        is_known = is_known || link.peer_access;
        if (link.peer_access && !*link.peer_access) pairs.push_back(fmt::format("{}-{}", i, j));
      }
    }
    if (!pairs.empty()) {
      const std::size_t shown = std::min<std::size_t>(pairs.size(), 8);
      add(Severity::warning, "peer access",
          fmt::format(
              "not between GPUs {}{}",
              fmt::join(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
              pairs.size() > shown ? fmt::format(" and {} more pairs", pairs.size() - shown) : ""),
          "collectives go through host memory there; look at IOMMU, ACS and MIG settings");
    } else if (is_known) {
      fine("peer access", "between all GPUs");
    }
  }

  void check_places() {
    if (machine_.nodes.size() < 2 || machine_.gpu_source == machine::FactSource::simulated) return;
    std::vector<std::size_t> unknown;
    std::vector<std::size_t> far;
    for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
      const machine::Topology::Gpu& gpu = machine_.gpus[i];
      if (!gpu.node && !gpu.cpus) unknown.push_back(i);
      if (gpu.cpus && machine_.allowed_cpus && !gpu.cpus->intersects(*machine_.allowed_cpus)) {
        far.push_back(i);
      }
    }
    if (!unknown.empty()) {
      add(Severity::warning, "NUMA",
          fmt::format("the nodes of GPUs {} are unknown, so ranks are not bound",
                      fmt::join(unknown, ", ")),
          "describe them with --topo-file, or divide the cores with --bind core");
    }
    if (!far.empty()) {
      add(Severity::warning, "NUMA",
          fmt::format("no CPU near GPUs {} may be used here", fmt::join(far, ", ")),
          "ask for CPUs of their nodes");
    }
  }

  void check_processors() {
    const std::size_t cores = plan_cores();
    const auto ranks = static_cast<std::size_t>(ranks_);
    if (machine_.cpu_quota && *machine_.cpu_quota < static_cast<double>(ranks)) {
      add(Severity::warning, "CPUs",
          fmt::format("a quota of {:.3g} CPUs for {} ranks", *machine_.cpu_quota, ranks),
          "raise the quota of the control group");
    } else if (cores < 2 * ranks) {
      add(Severity::note, "CPUs", fmt::format("{} cores for {} ranks", cores, ranks),
          "two a rank leave room for the threads of CUDA and NCCL");
    } else {
      fine("CPUs", fmt::format("{} cores for {} ranks", cores, ranks));
    }
  }

  std::size_t plan_cores() const {
    if (!machine_.allowed_cpus) return machine_.cores.size();
    return static_cast<std::size_t>(std::count_if(
        machine_.cores.begin(), machine_.cores.end(), [&](const machine::Topology::Core& core) {
          return core.cpus.intersects(*machine_.allowed_cpus);
        }));
  }

  void check_shared_memory() {
    if (!machine_.shm_bytes) return;
    const std::uint64_t wanted = kShmPerRank * static_cast<std::uint64_t>(ranks_);
    if (*machine_.shm_bytes < wanted) {
      add(Severity::warning, "/dev/shm",
          fmt::format("{} MiB are free, for {} ranks", *machine_.shm_bytes / kMiB, ranks_),
          fmt::format("make room for {} MiB; containers: --shm-size=1g or --ipc=host",
                      wanted / kMiB));
    } else {
      fine("/dev/shm", gibibytes(*machine_.shm_bytes) + " free");
    }
  }

  void check_limits() {
    const auto needed = 6 * static_cast<rlim_t>(ranks_) + 48;  // see reserve_descriptors()
    if (input_.limits.open_files < needed) {
      add(Severity::error, "open files",
          fmt::format("the limit is {}, and {} ranks need {}", input_.limits.open_files, ranks_,
                      needed),
          "raise ulimit -n");
    }
    const bool has_rdma =
        std::any_of(machine_.nics.begin(), machine_.nics.end(),
                    [](const machine::Topology::Nic& nic) { return nic.name.starts_with("mlx"); });
    if (has_rdma && input_.limits.locked_memory != RLIM_INFINITY) {
      add(Severity::warning, "locked memory",
          fmt::format("the limit is {} KiB, and RDMA registers memory",
                      input_.limits.locked_memory / 1024),
          "ulimit -l unlimited");
    }
  }

  const machine::Topology& machine_;
  const CheckInput& input_;
  int ranks_;
  std::vector<Finding> findings_;
};

GpuState read_state(const machine::Nvml& nvml, const std::string& uuid) {
  GpuState state;
  const auto device = nvml.device_by_uuid(uuid);
  if (!device) return state;
  for (const machine::NvmlProcess& process : nvml.processes(*device).value_or({})) {
    state.processes.push_back(process.pid);
  }
  state.throttle_reasons = nvml.throttle_reasons(*device).value;
  state.temperature = nvml.temperature(*device).value;
  const machine::NvmlComputeMode mode =
      nvml.compute_mode(*device).value_or(machine::NvmlComputeMode::shared);
  state.is_prohibited = mode == machine::NvmlComputeMode::prohibited;
  state.is_exclusive = mode == machine::NvmlComputeMode::exclusive_thread ||
                       mode == machine::NvmlComputeMode::exclusive_process;
  const machine::NvmlRemappedRows rows = nvml.remapped_rows(*device).value_or({});
  state.has_failed_rows = rows.has_failed;
  state.needs_reset = rows.is_pending || nvml.has_pending_retirement(*device).value_or(false);
  return state;
}

}  // namespace

std::vector<Finding> find_problems(const CheckInput& input, const CheckRequest& request) {
  return Check(input, request).run();
}

CheckInput look_for_check(const machine::TopologyOptions& options) {
  CheckInput input;
  try {
    DeviceInventory inventory =
        discover_devices(options, [](const char* variable) { return env::get(variable); });
    input.machine = std::move(inventory.machine);
    if (input.machine.gpus.empty()) input.machine.why_no_gpu = inventory.why_none;
  } catch (const InvalidArgument& error) {
    // A file that cannot be used is the user's mistake; a variable is a finding.
    if (!std::string_view(error.what()).starts_with("CUDA_")) throw;
    input.visible_problem = error.what();
    input.machine = machine::discover_topology(options);
  }
  if (input.machine.gpu_source == machine::FactSource::nvml) {
    const machine::Nvml nvml(options.nvml_path.empty() ? machine::Nvml::kDefaultPath
                                                       : options.nvml_path);
    for (const machine::Topology::Gpu& gpu : input.machine.gpus) {
      input.states.push_back(read_state(nvml, gpu.uuid));
    }
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) input.limits.open_files = limit.rlim_max;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) input.limits.locked_memory = limit.rlim_cur;
  return input;
}

CheckReport check_machine(const machine::TopologyOptions& options, const CheckRequest& request) {
  const CheckInput input = look_for_check(options);
  std::vector<Finding> findings = find_problems(input, request);
  std::optional<Bandwidths> bandwidths;
  if (request.full && input.machine.gpu_source == machine::FactSource::file) {
    findings.push_back({Severity::note, "bandwidth", "not measured: the GPUs are those of a file",
                        "use --full on the machine itself"});
    sort_findings(findings);
  } else if (request.full && !input.machine.gpus.empty() && input.visible_problem.empty()) {
    bandwidths = measure_bandwidths(measuring_program(), input.machine, request.deadline);
    std::vector<Finding> measured = find_slow_ways(input.machine, *bandwidths);
    std::move(measured.begin(), measured.end(), std::back_inserter(findings));
    sort_findings(findings);
  }
  CheckReport report;
  report.exit_code = exit_code(findings);
  if (request.json) {
    Json root = Json::object({{"schema", 1}, {"findings", findings_json(findings)}});
    if (bandwidths) root.set("bandwidths", bandwidths_json(*bandwidths));
    report.text = root.dump(2) + "\n";
  } else {
    report.text = findings_text(findings);
    if (bandwidths && bandwidths->no_devices.empty()) report.text += bandwidths_text(*bandwidths);
  }
  return report;
}

}  // namespace gantry::launcher
