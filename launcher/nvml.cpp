#include "launcher/nvml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/background_thread.hpp"
#include "core/shared_library.hpp"

namespace gantry::launcher {
namespace {

// NVML's stable C interface, as far as it is used here. Every symbol is looked up at run time, so
// that one build serves machines with and without a driver.
using Handle = void*;
constexpr int kSuccess = 0;
constexpr unsigned kTextBytes = 96;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

class Nvml {
 public:
  explicit Nvml(const std::string& path) : library_({path}) {
    library_.bind(init, "nvmlInit_v2");
    library_.bind(shutdown, "nvmlShutdown");
    library_.bind(count, "nvmlDeviceGetCount_v2");
    library_.bind(by_index, "nvmlDeviceGetHandleByIndex_v2");
    library_.bind(uuid, "nvmlDeviceGetUUID");
    // Older drivers lack some of these.
    library_.find(error_string, "nvmlErrorString");
    library_.find(name, "nvmlDeviceGetName");
    library_.find(pci_info, "nvmlDeviceGetPciInfo_v3");
    library_.find(mig_mode, "nvmlDeviceGetMigMode");
    library_.find(mig_count, "nvmlDeviceGetMaxMigDeviceCount");
    library_.find(mig_by_index, "nvmlDeviceGetMigDeviceHandleByIndex");
  }

  const std::string& problem() const { return library_.problem(); }
  std::string error_text(int code) const {
    const char* text = error_string == nullptr ? nullptr : error_string(code);
    return text != nullptr ? text : fmt::format("error {}", code);
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Handle*) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*pci_info)(Handle, PciInfo*) = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  int (*mig_count)(Handle, unsigned*) = nullptr;
  int (*mig_by_index)(Handle, unsigned, Handle*) = nullptr;

 private:
  SharedLibrary library_;
};

std::string text_of(int (*getter)(Handle, char*, unsigned), Handle device) {
  std::array<char, kTextBytes> text{};
  if (getter == nullptr || getter(device, text.data(), kTextBytes) != kSuccess) return {};
  text.back() = '\0';
  return text.data();
}

// NVML writes "00000000:1B:00.0", sysfs and CUDA "0000:1b:00.0".
std::string short_bus_id(const char* text) {
  std::string id = text;
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (id.size() == 16 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

void add_device(const Nvml& nvml, Handle gpu, std::vector<InventoryDevice>& devices) {
  InventoryDevice device{text_of(nvml.name, gpu), text_of(nvml.uuid, gpu), ""};
  PciInfo pci{};
  if (nvml.pci_info != nullptr && nvml.pci_info(gpu, &pci) == kSuccess) {
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    device.pci_bus_id = short_bus_id(pci.bus_id);
  }
  unsigned mode = 0;
  unsigned pending = 0;
  const bool divided = nvml.mig_mode != nullptr && nvml.mig_count != nullptr &&
                       nvml.mig_by_index != nullptr &&
                       nvml.mig_mode(gpu, &mode, &pending) == kSuccess && mode == 1;
  if (!divided) {
    devices.push_back(std::move(device));
    return;
  }
  unsigned instances = 0;
  nvml.mig_count(gpu, &instances);
  for (unsigned i = 0; i < instances; ++i) {
    Handle instance = nullptr;
    if (nvml.mig_by_index(gpu, i, &instance) != kSuccess) continue;
    devices.push_back({device.name, text_of(nvml.uuid, instance), device.pci_bus_id});
  }
}

}  // namespace

NvmlReport read_nvml(const std::string& path) {
  NvmlReport report;
  // NVML starts threads, which may outlive its shutdown. They inherit this mask: a signal for
  // glaunch that reached one of them would be lost, or end glaunch.
  const BlockedSignals blocked;
  const Nvml nvml(path);
  if (!nvml.problem().empty()) {
    report.problem = nvml.problem();
    return report;
  }
  if (const int code = nvml.init(); code != kSuccess) {
    report.problem = fmt::format("NVML does not start: {}", nvml.error_text(code));
    return report;
  }
  unsigned count = 0;
  if (const int code = nvml.count(&count); code != kSuccess) {
    report.problem = fmt::format("NVML cannot count devices: {}", nvml.error_text(code));
  }
  for (unsigned i = 0; i < count; ++i) {
    Handle gpu = nullptr;
    if (const int code = nvml.by_index(i, &gpu); code != kSuccess) {
      report.warnings.push_back(fmt::format("GPU {} cannot be used: {}", i, nvml.error_text(code)));
      continue;
    }
    add_device(nvml, gpu, report.devices);
  }
  nvml.shutdown();
  if (report.devices.empty() && report.problem.empty()) report.problem = "NVML shows no GPU";
  return report;
}

}  // namespace gantry::launcher
