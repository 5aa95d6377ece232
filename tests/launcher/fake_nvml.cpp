// A library with NVML's C interface whose devices come from FAKE_NVML: "name,uuid,bus id;…". A
// device "name,uuid,bus id,MIG-a,MIG-b" is divided into instances.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;

struct Device {
  std::vector<std::string> fields;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<Device>& devices() {
  static std::vector<Device> list = [] {
    std::vector<Device> result;
    const char* text = std::getenv("FAKE_NVML");
    for (const std::string& entry : split(text == nullptr ? "" : text, ';')) {
      result.push_back({split(entry, ',')});
    }
    return result;
  }();
  return list;
}

std::vector<Device>& instances() {
  static std::vector<Device> list;
  return list;
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

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("FAKE_NVML_FAILS") == nullptr ? kSuccess : 9; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "No Permission"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices().size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (devices()[index].fields[0] == "forbidden") return kNoPermission;
  *handle = &devices()[index];
  return kSuccess;
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
  const auto& fields = device(handle).fields;
  if (index + 3 >= fields.size()) return kNotFound;
  instances().reserve(64);
  instances().push_back({{fields[0], fields[3 + index], fields[2]}});
  *instance = &instances().back();
  return kSuccess;
}
}
