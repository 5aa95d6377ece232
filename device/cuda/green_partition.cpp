#include "device/drivers/green_partition.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"

namespace gantry {
namespace {

// The functions of green contexts, which older drivers lack.
struct GreenApi {
  decltype(&cuDeviceGetDevResource) get_resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split_by_count = nullptr;
  decltype(&cuDevResourceGenerateDesc) generate_description = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  CUresult (*create_stream)(CUstream*, CUgreenCtx, unsigned, int) = nullptr;  // not in CUDA 12.4
};

constexpr unsigned kInterfaceVersion = 12050;

template <class Function>
void find(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  GANTRY_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &found, kInterfaceVersion, cudaEnableDefault, &result),
      fmt::format("looking up {}", name));
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw NotSupported(fmt::format(
        "GreenContext: expected a driver for CUDA 12.5 or newer, but got one without {}", name));
  }
  function = reinterpret_cast<Function>(found);
}

GreenApi load() {
  GreenApi api;
  find(api.get_resource, "cuDeviceGetDevResource");
  find(api.split_by_count, "cuDevSmResourceSplitByCount");
  find(api.generate_description, "cuDevResourceGenerateDesc");
  find(api.create, "cuGreenCtxCreate");
  find(api.destroy, "cuGreenCtxDestroy");
  find(api.create_stream, "cuGreenCtxStreamCreate");
  return api;
}

const GreenApi& green_api() {
  static const GreenApi kApi = load();
  return kApi;
}

}  // namespace

GreenPartition make_green_partition(int device, int multiprocessors) {
  const GreenApi& api = green_api();
  const cuda::ContextScope scope(device);  // a green context shares the primary one's memory
  CUdevResource all{};
  GANTRY_CUDA_CHECK(api.get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM),
                    "reading the multiprocessors", device);
  CUdevResource part{};
  CUdevResource rest{};
  unsigned parts = 1;
  GANTRY_CUDA_CHECK(
      api.split_by_count(&part, &parts, &all, &rest, 0, static_cast<unsigned>(multiprocessors)),
      "splitting the multiprocessors", device);
  CUdevResourceDesc description{};
  GANTRY_CUDA_CHECK(api.generate_description(&description, &part, 1), "describing a green context",
                    device);
  CUgreenCtx context{};
  GANTRY_CUDA_CHECK(api.create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
                    "creating a green context", device);
  return {.context = context, .multiprocessors = static_cast<int>(part.sm.smCount)};
}

NativeStream make_green_stream(int device, const GreenPartition& partition, int priority) {
  CUstream stream{};
  GANTRY_CUDA_CHECK(green_api().create_stream(&stream, static_cast<CUgreenCtx>(partition.context),
                                              CU_STREAM_NON_BLOCKING, priority),
                    "creating a stream of a green context", device);
  return {.device = device, .handle = stream};
}

void destroy_green_partition(const GreenPartition& partition) noexcept {
  GANTRY_CUDA_WARN(green_api().destroy(static_cast<CUgreenCtx>(partition.context)),
                   "destroying a green context");
}

}  // namespace gantry
