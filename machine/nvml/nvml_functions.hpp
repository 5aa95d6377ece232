// NVML's stable C interface, as far as gantry uses it.
#pragma once

#include <cstdint>
#include <string>

#include "core/files/shared_library.hpp"
#include "machine/nvml/nvml.hpp"

namespace gantry::machine {

/// Codes of NVML.
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlNotSupported = 3;
inline constexpr int kNvmlInsufficientSize = 7;
inline constexpr int kNvmlFunctionNotFound = 13;

/// nvmlPciInfo_t, version 3.
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

/// nvmlFieldValue_t.
struct NvmlFieldValue {
  unsigned field;
  unsigned scope;
  std::int64_t timestamp;
  std::int64_t latency_us;
  int type;
  int result;
  std::uint64_t value;  // a union; the fields in use here are unsigned
};

/// nvmlProcessInfo_t, version 2.
struct NvmlProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

/// nvmlMemory_t.
struct NvmlMemoryInfo {
  unsigned long long total, free, used;
};

struct NvmlUtilizationRates {
  unsigned gpu, memory;
};

/// The functions; null where the driver lacks one.
struct Nvml::Functions {
  explicit Functions(const std::string& path);

  using Device = NvmlDevice;
  using UnsignedGetter = int(Device, unsigned*);

  SharedLibrary library;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*pci_info)(Device, NvmlPciInfo*) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  UnsignedGetter* mig_count = nullptr;
  int (*mig_by_index)(Device, unsigned, Device*) = nullptr;
  int (*mig_parent)(Device, Device*) = nullptr;
  int (*common_ancestor)(Device, Device, int*) = nullptr;
  int (*p2p_status)(Device, Device, int, int*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_pci)(Device, unsigned, NvmlPciInfo*) = nullptr;
  int (*link_remote)(Device, unsigned, int*) = nullptr;
  int (*fields)(Device, int, NvmlFieldValue*) = nullptr;
  UnsignedGetter* pcie_generation = nullptr;
  UnsignedGetter* pcie_width = nullptr;
  UnsignedGetter* max_pcie_generation = nullptr;
  UnsignedGetter* max_pcie_width = nullptr;
  int (*near_cpus)(Device, unsigned, unsigned long*, unsigned) = nullptr;
  int (*near_nodes)(Device, unsigned, unsigned long*, unsigned) = nullptr;
  int (*memory)(Device, NvmlMemoryInfo*) = nullptr;
  int (*utilization)(Device, NvmlUtilizationRates*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  UnsignedGetter* power = nullptr;
  UnsignedGetter* power_limit = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*max_clock)(Device, int, unsigned*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  int (*processes)(Device, unsigned*, NvmlProcessInfo*) = nullptr;
  int (*process_name)(unsigned, char*, unsigned) = nullptr;
  UnsignedGetter* compute_mode = nullptr;
  UnsignedGetter* persistence = nullptr;
  UnsignedGetter* retired_pending = nullptr;
  int (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
};

template <class T>
NvmlResult<T> Nvml::failure(int code) const {
  return {std::nullopt, problem_.empty() ? error_text(code) : problem_};
}

// Calls `function(arguments…, &result)`.
template <class T, class... Parameters, class... Arguments>
NvmlResult<T> Nvml::ask(int (*function)(Parameters...), Arguments... arguments) const {
  if (!is_initialised_ || function == nullptr) return failure<T>(kNvmlFunctionNotFound);
  T value{};
  if (const int code = function(arguments..., &value); code != kNvmlSuccess) {
    return failure<T>(code);
  }
  return {value, {}};
}

}  // namespace gantry::machine
