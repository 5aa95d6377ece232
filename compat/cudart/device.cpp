// Devices and what is known of them.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>

#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>

#include "compat/cudart/device_facts.hpp"
#include "compat/cudart/next.hpp"
#include "compat/cudart/peers.hpp"
#include "compat/cudart/streams.hpp"

namespace gantry::cudart_api {

namespace {

cudaError_t count(int* place) {
  expect_place(place);
  *place = device_count();
  return *place > 0 ? cudaSuccess : cudaErrorNoDevice;
}

void set_device(int device) { driver().set_device(checked_device(device)); }
void init_device(int device, unsigned, unsigned) { (void)checked_device(device); }

void current(int* place) {
  expect_place(place);
  *place = driver().current_device();
}

void properties(cudaDeviceProp* place, int device) {
  expect_place(place);
  *place = runtime_properties(checked_device(device));
}

void attribute(int* place, cudaDeviceAttr which, int device) {
  expect_place(place);
  expect(which > 0 && which < cudaDevAttrMax, cudaErrorInvalidValue, "expected a cudaDeviceAttr");
  *place = runtime_attribute(which, checked_device(device));
}

void pci_bus_id(char* place, int length, int device) {
  expect_place(place);
  const std::string id = driver().properties(checked_device(device)).pci_bus_id;
  expect(length > static_cast<int>(id.size()), cudaErrorInvalidValue, "the place is too short");
  std::memcpy(place, id.c_str(), id.size() + 1);
}

void by_pci_bus_id(int* place, const char* id) {
  expect_place(place);
  expect_place(id);
  for (int device = 0; device < driver().device_count(); ++device) {
    if (driver().properties(device).pci_bus_id != id) continue;
    *place = device;
    return;
  }
  throw Refusal(cudaErrorInvalidDevice, "there is no such device");
}

void priority_range(int* least, int* greatest) {
  const Driver::PriorityRange range = driver().priority_range(driver().current_device());
  if (least != nullptr) *least = range.least;
  if (greatest != nullptr) *greatest = range.greatest;
}

void synchronize_current() { driver().synchronize_device(driver().current_device()); }

void version(int* place) {
  expect_place(place);
  *place = CUDART_VERSION;
}

thread_local unsigned device_flags = cudaDeviceScheduleAuto;

void set_flags(unsigned flags) {
  expect((flags & ~static_cast<unsigned>(cudaDeviceMask)) == 0, cudaErrorInvalidValue,
         "expected flags of cudaSetDeviceFlags");
  device_flags = flags;
}

void get_flags(unsigned* place) {
  expect_place(place);
  *place = device_flags | cudaDeviceMapHost;
}

// Limits of kernels, which simulated devices do not run.
std::array<std::atomic<std::size_t>, cudaLimitPersistingL2CacheSize + 1> limits{};

std::atomic<std::size_t>& limit_of(cudaLimit which) {
  expect(static_cast<std::size_t>(which) < limits.size(), cudaErrorUnsupportedLimit,
         "expected a cudaLimit");
  return limits.at(static_cast<std::size_t>(which));
}

void set_limit(cudaLimit which, std::size_t value) { limit_of(which) = value; }

void get_limit(std::size_t* place, cudaLimit which) {
  expect_place(place);
  *place = limit_of(which);
}

void profile() {}  // there is no profiler to tell

// Memory and streams stay: libgantry has some of its own.
void reset() {
  synchronize_current();
  reset_access(driver().current_device());
}

}  // namespace

GANTRY_CUDART_CALL(cudaGetDeviceCount, (int* place), (place), count)
GANTRY_CUDART_CALL(cudaSetDevice, (int device), (device), set_device)
GANTRY_CUDART_CALL(cudaInitDevice, (int device, unsigned device_flags, unsigned flags),
                   (device, device_flags, flags), init_device)
GANTRY_CUDART_CALL(cudaGetDevice, (int* place), (place), current)
GANTRY_CUDART_CALL(cudaGetDeviceProperties, (cudaDeviceProp * place, int device), (place, device),
                   properties)
GANTRY_CUDART_CALL(cudaDeviceGetAttribute, (int* place, cudaDeviceAttr which, int device),
                   (place, which, device), attribute)
GANTRY_CUDART_CALL(cudaDeviceGetPCIBusId, (char* place, int length, int device),
                   (place, length, device), pci_bus_id)
GANTRY_CUDART_CALL(cudaDeviceGetByPCIBusId, (int* place, const char* id), (place, id),
                   by_pci_bus_id)
GANTRY_CUDART_CALL(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest), (least, greatest),
                   priority_range)
GANTRY_CUDART_CALL(cudaDeviceSynchronize, (), (), synchronize_current)
GANTRY_CUDART_CALL(cudaDeviceReset, (), (), reset)
GANTRY_CUDART_CALL(cudaDriverGetVersion, (int* place), (place), version)
GANTRY_CUDART_CALL(cudaRuntimeGetVersion, (int* place), (place), version)
GANTRY_CUDART_CALL(cudaSetDeviceFlags, (unsigned flags), (flags), set_flags)
GANTRY_CUDART_CALL(cudaGetDeviceFlags, (unsigned* place), (place), get_flags)
GANTRY_CUDART_CALL(cudaDeviceSetLimit, (cudaLimit which, std::size_t value), (which, value),
                   set_limit)
GANTRY_CUDART_CALL(cudaDeviceGetLimit, (std::size_t * place, cudaLimit which), (place, which),
                   get_limit)
GANTRY_CUDART_CALL(cudaProfilerStart, (), (), profile)
GANTRY_CUDART_CALL(cudaProfilerStop, (), (), profile)

}  // namespace gantry::cudart_api
