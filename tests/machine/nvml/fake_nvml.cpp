// A library with NVML's C interface. Its devices come from FAKE_NVML: "name,uuid,bus id;…". A
// device "name,uuid,bus id,MIG-a,MIG-b" is divided into instances. More comes from FAKE_NVML_FACTS,
// "device fact value…;device-device fact value…", such as "0 memory 80 70 10;0-1 ancestor 20". The
// second instance of device 0 is "0/1", process 17 is "pid17". A question without a fact is
// answered with Not Supported.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

struct Device {
  std::vector<std::string> fields;
  std::string index = {};    // of an instance
  Device* parent = nullptr;  // of an instance
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// The environment is read anew at each nvmlInit_v2, so that one test sees several machines.
std::vector<Device> devices;
std::list<Device> instances;
std::map<std::string, std::vector<std::string>> facts;

void read_environment() {
  devices.clear();
  facts.clear();
  const char* text = std::getenv("FAKE_NVML");
  for (const std::string& entry : split(text == nullptr ? "" : text, ';')) {
    devices.push_back({split(entry, ',')});
  }
  text = std::getenv("FAKE_NVML_FACTS");
  for (const std::string& entry : split(text == nullptr ? "" : text, ';')) {
    std::vector<std::string> words = split(entry, ' ');
    if (words.size() < 2) continue;
    const std::string key = words[0] + " " + words[1];
    facts[key] = {words.begin() + 2, words.end()};
  }
}

int copy(const std::string& text, char* to, unsigned size) {
  std::snprintf(to, size, "%s", text.c_str());
  return kSuccess;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};

const Device& device(void* handle) { return *static_cast<Device*>(handle); }

std::string index_of(void* handle) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (&devices[i] == handle) return std::to_string(i);
  }
  return device(handle).index;
}

const std::vector<std::string>* fact(const std::string& subject, const std::string& name) {
  const auto found = facts.find(subject + " " + name);
  return found == facts.end() ? nullptr : &found->second;
}

template <class T>
T number(const std::string& text) {
  return static_cast<T>(std::strtoull(text.c_str(), nullptr, 0));
}

template <class T>
int tell(const std::string& subject, const std::string& name, T* value, std::size_t at = 0) {
  const auto* values = fact(subject, name);
  if (values == nullptr || at >= values->size()) return kNotSupported;
  *value = number<T>((*values)[at]);
  return kSuccess;
}

int tell_bits(const std::string& subject, const std::string& name, unsigned words,
              unsigned long* set) {
  const auto* values = fact(subject, name);
  if (values == nullptr) return kNotSupported;
  std::memset(set, 0, words * sizeof *set);
  for (const std::string& value : *values) {
    const unsigned bit = number<unsigned>(value);
    if (bit / 64 < words) set[bit / 64] |= 1UL << (bit % 64);
  }
  return kSuccess;
}

// The instance of `gpu` with this number. Each call makes a new one, as handles need not be equal.
void* instance_of(Device& gpu, std::size_t number) {
  instances.push_back({{gpu.fields[0], gpu.fields[3 + number], gpu.fields[2]},
                       index_of(&gpu) + "/" + std::to_string(number),
                       &gpu});
  return &instances.back();
}

std::string pair(void* a, void* b) { return index_of(a) + "-" + index_of(b); }

std::string link(unsigned index) { return "link" + std::to_string(index); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  read_environment();
  return std::getenv("FAKE_NVML_FAILS") == nullptr ? kSuccess : 9;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  switch (code) {
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case 9:
      return "Driver Not Loaded";
    default:
      return "No Permission";
  }
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const auto* values = fact("driver", "version");
  return values == nullptr ? kNotSupported : copy(values->at(0), text, size);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices.size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (devices[index].fields[0] == "forbidden") return kNoPermission;
  *handle = &devices[index];
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  for (Device& one : devices) {
    for (std::size_t i = 1; i < one.fields.size(); ++i) {
      if (i == 2 || one.fields[i] != uuid) continue;
      *handle = i == 1 ? &one : instance_of(one, i - 3);
      return kSuccess;
    }
  }
  return kNotFound;
}
int nvmlDeviceGetName(void* handle, char* text, unsigned size) {
  return copy(device(handle).fields[0], text, size);
}
int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
  return copy(device(handle).fields[1], text, size);
}
int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  return copy(device(handle).fields[2], info->bus_id, sizeof info->bus_id);
}
int nvmlDeviceGetCudaComputeCapability(void* handle, int* major, int* minor) {
  const int code = tell(index_of(handle), "capability", major);
  return code != kSuccess ? code : tell(index_of(handle), "capability", minor, 1);
}
int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  *current = *pending = device(handle).fields.size() > 3 ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* count) {
  // One slot more than there are instances, as on hardware.
  *count = static_cast<unsigned>(device(handle).fields.size() - 3) + 1;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** instance) {
  if (index + 3 >= device(handle).fields.size()) return kNotFound;
  *instance = instance_of(*static_cast<Device*>(handle), index);
  return kSuccess;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* handle, void** gpu) {
  if (device(handle).parent == nullptr) return kNotFound;
  *gpu = device(handle).parent;
  return kSuccess;
}
int nvmlSystemGetProcessName(unsigned pid, char* text, unsigned size) {
  const auto* values = fact("pid" + std::to_string(pid), "name");
  return values == nullptr ? kNotFound : copy(values->at(0), text, size);
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  return tell(pair(a, b), "ancestor", level);
}
int nvmlDeviceGetP2PStatus(void* a, void* b, int capability, int* status) {
  return tell(pair(a, b), "p2p", status, static_cast<std::size_t>(capability));
}
// "0 link3 1 switch-or-gpu-number bus-id": state, remote type, remote bus id.
int nvmlDeviceGetNvLinkState(void* handle, unsigned index, unsigned* state) {
  return tell(index_of(handle), link(index), state);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* handle, unsigned index, int* type) {
  return tell(index_of(handle), link(index), type, 1);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* handle, unsigned index, PciInfo* info) {
  const auto* values = fact(index_of(handle), link(index));
  if (values == nullptr || values->size() < 3) return kNotSupported;
  return copy((*values)[2], info->bus_id, sizeof info->bus_id);
}
struct FieldValue {
  unsigned field, scope;
  std::int64_t timestamp, latency;
  int type, result;
  std::uint64_t value;
};
int nvmlDeviceGetFieldValues(void* handle, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    const std::string name =
        "field" + std::to_string(values[i].field) + "." + std::to_string(values[i].scope);
    values[i].result = tell(index_of(handle), name, &values[i].value);
  }
  return kSuccess;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* handle, unsigned* value) {
  return tell(index_of(handle), "pcie", value, 0);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* handle, unsigned* value) {
  return tell(index_of(handle), "pcie", value, 1);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* handle, unsigned* value) {
  return tell(index_of(handle), "pcie", value, 2);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* handle, unsigned* value) {
  return tell(index_of(handle), "pcie", value, 3);
}
int nvmlDeviceGetCpuAffinityWithinScope(void* handle, unsigned words, unsigned long* set,
                                        unsigned /*scope*/) {
  return tell_bits(index_of(handle), "cpus", words, set);
}
int nvmlDeviceGetMemoryAffinity(void* handle, unsigned words, unsigned long* set,
                                unsigned /*scope*/) {
  return tell_bits(index_of(handle), "nodes", words, set);
}
int nvmlDeviceGetMemoryInfo(void* handle, unsigned long long* total_free_used) {
  for (std::size_t i = 0; i < 3; ++i) {
    const int code = tell(index_of(handle), "memory", total_free_used + i, i);
    if (code != kSuccess) return code;
  }
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* handle, unsigned* gpu_memory) {
  const int code = tell(index_of(handle), "utilization", gpu_memory);
  return code != kSuccess ? code : tell(index_of(handle), "utilization", gpu_memory + 1, 1);
}
int nvmlDeviceGetTemperature(void* handle, int sensor, unsigned* value) {
  return sensor != 0 ? kNotSupported : tell(index_of(handle), "temperature", value);
}
int nvmlDeviceGetPowerUsage(void* handle, unsigned* value) {
  return tell(index_of(handle), "power", value);
}
int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* value) {
  return tell(index_of(handle), "power", value, 1);
}
int nvmlDeviceGetClockInfo(void* handle, int which, unsigned* value) {
  return tell(index_of(handle), "clocks", value, static_cast<std::size_t>(which));
}
int nvmlDeviceGetMaxClockInfo(void* handle, int which, unsigned* value) {
  return tell(index_of(handle), "maxclocks", value, static_cast<std::size_t>(which));
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* value) {
  return tell(index_of(handle), "throttle", value);
}
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
// "0 processes pid bytes pid bytes": bytes 0xffffffffffffffff are unknown.
int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfo* infos) {
  const auto* values = fact(index_of(handle), "processes");
  if (values == nullptr) return kNotSupported;
  const unsigned room = *count;
  *count = static_cast<unsigned>(values->size() / 2);
  if (*count > room) return kInsufficientSize;
  for (std::size_t i = 0; i < *count; ++i) {
    infos[i] = {number<unsigned>((*values)[2 * i]),
                number<unsigned long long>((*values)[2 * i + 1]), 0, 0};
  }
  return kSuccess;
}
int nvmlDeviceGetComputeMode(void* handle, unsigned* value) {
  return tell(index_of(handle), "mode", value);
}
int nvmlDeviceGetPersistenceMode(void* handle, unsigned* value) {
  return tell(index_of(handle), "persistence", value);
}
int nvmlDeviceGetRetiredPagesPendingStatus(void* handle, unsigned* value) {
  return tell(index_of(handle), "retired", value);
}
int nvmlDeviceGetRemappedRows(void* handle, unsigned* correctable, unsigned* uncorrectable,
                              unsigned* pending, unsigned* failed) {
  unsigned* const values[] = {correctable, uncorrectable, pending, failed};
  for (std::size_t i = 0; i < 4; ++i) {
    const int code = tell(index_of(handle), "rows", values[i], i);
    if (code != kSuccess) return code;
  }
  return kSuccess;
}
}
