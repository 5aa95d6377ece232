#include "device/cuda/cuda_api.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "device/cuda/cuda_check.hpp"

namespace gantry::cuda {

namespace {

// Oldest driver interface with everything in the table.
constexpr unsigned kInterfaceVersion = 12000;

template <class Function>
Function find(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  GANTRY_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, kInterfaceVersion,
                                                     cudaEnableDefault, &found),
                    fmt::format("looking up {}", name));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw NotSupported(fmt::format(
        "The CUDA driver has no function {}: a driver for CUDA 12 or newer is needed", name));
  }
  return reinterpret_cast<Function>(function);
}

DriverApi load() {
  DriverApi table;
// cuda.h defines cuEventDestroy as cuEventDestroy_v2: #name is the first, table.name the second.
#define GANTRY_FIND(name) table.name = find<decltype(table.name)>(#name);
  GANTRY_CUDA_DRIVER_FUNCTIONS(GANTRY_FIND)
#undef GANTRY_FIND
  table.stream_get_capture_info =
      find<decltype(table.stream_get_capture_info)>("cuStreamGetCaptureInfo");
  table.stream_update_capture_dependencies =
      find<decltype(table.stream_update_capture_dependencies)>("cuStreamUpdateCaptureDependencies");
  return table;
}

}  // namespace

const DriverApi& api() {
  static const DriverApi kTable = load();
  return kTable;
}

}  // namespace gantry::cuda
