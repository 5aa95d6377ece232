#include "machine/nvml/nvml_functions.hpp"

namespace gantry::machine {

Nvml::Functions::Functions(const std::string& path) : library({path}) {
  library.bind(init, "nvmlInit_v2");
  library.bind(shutdown, "nvmlShutdown");
  library.bind(count, "nvmlDeviceGetCount_v2");
  library.bind(by_index, "nvmlDeviceGetHandleByIndex_v2");
  library.bind(uuid, "nvmlDeviceGetUUID");
  // Older drivers lack some of these.
  library.find(error_string, "nvmlErrorString");
  library.find(driver_version, "nvmlSystemGetDriverVersion");
  library.find(by_uuid, "nvmlDeviceGetHandleByUUID");
  library.find(name, "nvmlDeviceGetName");
  library.find(pci_info, "nvmlDeviceGetPciInfo_v3");
  library.find(capability, "nvmlDeviceGetCudaComputeCapability");
  library.find(mig_mode, "nvmlDeviceGetMigMode");
  library.find(mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  library.find(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  library.find(mig_parent, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  library.find(common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  library.find(p2p_status, "nvmlDeviceGetP2PStatus");
  library.find(link_state, "nvmlDeviceGetNvLinkState");
  library.find(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  library.find(link_remote, "nvmlDeviceGetNvLinkRemoteDeviceType");
  library.find(fields, "nvmlDeviceGetFieldValues");
  library.find(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  library.find(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  library.find(max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  library.find(max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  library.find(near_cpus, "nvmlDeviceGetCpuAffinityWithinScope");
  library.find(near_nodes, "nvmlDeviceGetMemoryAffinity");
  library.find(memory, "nvmlDeviceGetMemoryInfo");
  library.find(utilization, "nvmlDeviceGetUtilizationRates");
  library.find(temperature, "nvmlDeviceGetTemperature");
  library.find(power, "nvmlDeviceGetPowerUsage");
  library.find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  library.find(clock, "nvmlDeviceGetClockInfo");
  library.find(max_clock, "nvmlDeviceGetMaxClockInfo");
  library.find(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  library.find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  library.find(process_name, "nvmlSystemGetProcessName");
  library.find(compute_mode, "nvmlDeviceGetComputeMode");
  library.find(persistence, "nvmlDeviceGetPersistenceMode");
  library.find(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
  library.find(remapped_rows, "nvmlDeviceGetRemappedRows");
}

}  // namespace gantry::machine
