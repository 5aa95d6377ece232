// NVIDIA's management library, loaded at run time. It never initialises CUDA.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::machine {

/// A GPU or a MIG instance, as NVML names it. Valid as long as its Nvml.
using NvmlDevice = void*;

/// One answer of NVML, or the reason why there is none.
template <class T>
struct NvmlResult {
  std::optional<T> value;
  std::string problem;  ///< such as "Not Supported"; empty if there is a value

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  [[nodiscard]] T value_or(T fallback) const { return value.value_or(std::move(fallback)); }
};

/// Bytes of a device's memory.
struct NvmlMemory {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t used = 0;
};

/// Percentages of the driver's last sample period.
struct NvmlUtilization {
  unsigned gpu = 0;     ///< time with a kernel running
  unsigned memory = 0;  ///< time with memory being read or written
};

/// A process with a context on a device. The process id is an id of the host, not of a container.
struct NvmlProcess {
  unsigned pid = 0;
  std::optional<std::uint64_t> used_bytes;  ///< none where the driver does not tell (containers)
};

/// The kind of the other end of an NVLink.
enum class NvmlRemote { gpu, npu, nvswitch, unknown };

/// One NVLink of a device.
struct NvmlLink {
  int index = 0;
  bool is_active = false;
  NvmlRemote remote = NvmlRemote::unknown;
  std::string remote_bus_id;  ///< "0000:1b:00.0"; empty if the driver hides it
};

/// PCIe generation and width, now and at most.
struct NvmlPcie {
  std::optional<unsigned> generation, width, max_generation, max_width;
};

/// Common ancestor of two devices in the PCI tree, nearest first. The values are NVML's.
enum class NvmlAncestor {
  board = 0,
  one_switch = 10,
  several_switches = 20,
  host_bridge = 30,
  node = 40,
  system = 50,
};

/// A clock of a device.
enum class NvmlClock { graphics = 0, sm = 1, memory = 2 };

/// Who may use a device. The values are NVML's.
enum class NvmlComputeMode {
  shared = 0,
  exclusive_thread = 1,
  prohibited = 2,
  exclusive_process = 3
};

/// Rows of a device's memory that are replaced by spare ones.
struct NvmlRemappedRows {
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  bool is_pending = false;  ///< a reset of the GPU is needed
  bool has_failed = false;
};

/// A session with NVML. Every function is looked up at run time: a driver that lacks one costs that
/// answer only.
///
/// Thread safety: const functions by any thread.
class Nvml {
 public:
  /// Loads the library at `path` and initialises it. See problem().
  explicit Nvml(const std::string& path = kDefaultPath);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  static constexpr const char* kDefaultPath = "libnvidia-ml.so.1";

  /// Why NVML cannot be used; empty if it can. Without NVML every result has this problem.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  [[nodiscard]] NvmlResult<std::string> driver_version() const;
  [[nodiscard]] NvmlResult<int> device_count() const;
  /// Devices in PCI order.
  [[nodiscard]] NvmlResult<NvmlDevice> device(int index) const;
  [[nodiscard]] NvmlResult<NvmlDevice> device_by_uuid(const std::string& uuid) const;

  [[nodiscard]] NvmlResult<std::string> name(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<std::string> uuid(NvmlDevice device) const;
  /// "0000:1b:00.0", as sysfs and CUDA write it.
  [[nodiscard]] NvmlResult<std::string> pci_bus_id(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<std::array<int, 2>> compute_capability(NvmlDevice device) const;
  /// The device's instances if it is in MIG mode; else none.
  [[nodiscard]] NvmlResult<std::vector<NvmlDevice>> mig_instances(NvmlDevice device) const;

  /// The GPU that an instance is a part of. Other devices are an error.
  [[nodiscard]] NvmlResult<NvmlDevice> gpu_of_instance(NvmlDevice instance) const;
  /// Whether the device is in MIG mode.
  [[nodiscard]] NvmlResult<bool> is_divided(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<NvmlAncestor> common_ancestor(NvmlDevice a, NvmlDevice b) const;
  /// Whether `a` can read and write the memory of `b`.
  [[nodiscard]] NvmlResult<bool> peer_access(NvmlDevice a, NvmlDevice b) const;
  /// Whether the peers reach each other by NVLink, directly or through switches.
  [[nodiscard]] NvmlResult<bool> has_nvlink(NvmlDevice a, NvmlDevice b) const;
  /// The links that the device has, active or not.
  [[nodiscard]] std::vector<NvmlLink> links(NvmlDevice device) const;
  [[nodiscard]] NvmlPcie pcie(NvmlDevice device) const;
  /// CPUs of the device's NUMA node, and NUMA nodes near it, as numbers.
  [[nodiscard]] NvmlResult<std::vector<int>> near_cpus(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<std::vector<int>> near_nodes(NvmlDevice device) const;

  [[nodiscard]] NvmlResult<NvmlMemory> memory(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<NvmlUtilization> utilization(NvmlDevice device) const;
  /// Degrees Celsius.
  [[nodiscard]] NvmlResult<unsigned> temperature(NvmlDevice device) const;
  /// Milliwatts.
  [[nodiscard]] NvmlResult<unsigned> power(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<unsigned> power_limit(NvmlDevice device) const;
  /// MHz.
  [[nodiscard]] NvmlResult<unsigned> clock(NvmlDevice device, NvmlClock which) const;
  [[nodiscard]] NvmlResult<unsigned> max_clock(NvmlDevice device, NvmlClock which) const;
  /// NVML's bits for the reasons of clocks below their maximum.
  [[nodiscard]] NvmlResult<std::uint64_t> throttle_reasons(NvmlDevice device) const;
  /// Processes with compute contexts.
  [[nodiscard]] NvmlResult<std::vector<NvmlProcess>> processes(NvmlDevice device) const;
  /// Name of the process with this number, as /proc of the calling process has it.
  [[nodiscard]] NvmlResult<std::string> process_name(unsigned pid) const;
  [[nodiscard]] NvmlResult<NvmlComputeMode> compute_mode(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<bool> persistence(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<bool> has_pending_retirement(NvmlDevice device) const;
  [[nodiscard]] NvmlResult<NvmlRemappedRows> remapped_rows(NvmlDevice device) const;

 private:
  struct Functions;

  template <class T, class... Parameters, class... Arguments>
  NvmlResult<T> ask(int (*function)(Parameters...), Arguments... arguments) const;
  template <class T>
  NvmlResult<T> failure(int code) const;
  std::string error_text(int code) const;
  NvmlResult<std::string> text(int (*getter)(NvmlDevice, char*, unsigned), NvmlDevice device) const;
  std::optional<bool> link_state(NvmlDevice device, unsigned link) const;

  std::unique_ptr<Functions> functions_;
  std::string problem_;
  bool is_initialised_ = false;
};

/// "0000:1b:00.0" for NVML's "00000000:1B:00.0".
[[nodiscard]] std::string short_bus_id(std::string_view text);

}  // namespace gantry::machine
