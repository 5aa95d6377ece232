// Kernels, which simulated devices cannot run: launches are refused by name.
#include <cxxabi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "compat/cudart/next.hpp"

namespace gantry::cudart_api {

namespace {

// The names of all kernels by the host's functions that stand for them.
struct KernelNames {
  std::mutex mutex;
  std::unordered_map<const void*, const char*> by_function;
  std::set<const void*> refused;

  static KernelNames& all() {
    static auto* const names = new KernelNames;  // used before this library is initialised
    return *names;
  }
};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

std::string name_of(const void* function) {
  KernelNames& names = KernelNames::all();
  const auto found = names.by_function.find(function);
  return found == names.by_function.end() ? "without a name" : demangled(found->second);
}

// Tells once for each kernel.
cudaError_t refuse_launch(const void* function) {
  KernelNames& names = KernelNames::all();
  const std::lock_guard lock(names.mutex);
  if (names.refused.insert(function).second) {
    std::fprintf(stderr,
                 "gantry: cannot launch kernel %s: simulated devices run no kernels of the program "
                 "(cudaErrorNotSupported)\n",
                 name_of(function).c_str());
  }
  return cudaErrorNotSupported;
}

cudaError_t refuse() { return cudaErrorNotSupported; }

}  // namespace

// A call that simulated devices refuse.
#define GANTRY_CUDART_REFUSED(name, parameters, arguments) \
  GANTRY_CUDART_API cudaError_t name parameters {          \
    if (is_simulated()) return guarded(#name, refuse);     \
    GANTRY_CUDART_PASS_ON(name, arguments);                \
  }
// A launch of `function`, one of the parameters.
#define GANTRY_CUDART_REFUSED_LAUNCH(name, parameters, arguments)                       \
  GANTRY_CUDART_API cudaError_t name parameters {                                       \
    if (is_simulated()) return guarded(#name, [&] { return refuse_launch(function); }); \
    GANTRY_CUDART_PASS_ON(name, arguments);                                             \
  }

#define GANTRY_CUDART_LAUNCH_PARAMETERS                                                  \
  (const void* function, dim3 grid, dim3 block, void** values, std::size_t shared_bytes, \
   cudaStream_t stream)
#define GANTRY_CUDART_LAUNCH_ARGUMENTS (function, grid, block, values, shared_bytes, stream)

GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchKernel, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)
GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchKernel_ptsz, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)
GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchCooperativeKernel, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)
GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchCooperativeKernel_ptsz, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)
GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchKernelExC,
                             (const cudaLaunchConfig_t* config, const void* function,
                              void** values),
                             (config, function, values))
GANTRY_CUDART_REFUSED_LAUNCH(cudaLaunchKernelExC_ptsz,
                             (const cudaLaunchConfig_t* config, const void* function,
                              void** values),
                             (config, function, values))

// nvcc writes calls of these for `kernel<<<…>>>(…)`. The kernel's handle is the host's function.
GANTRY_CUDART_REFUSED_LAUNCH(__cudaLaunchKernel, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)
GANTRY_CUDART_REFUSED_LAUNCH(__cudaLaunchKernel_ptsz, GANTRY_CUDART_LAUNCH_PARAMETERS,
                             GANTRY_CUDART_LAUNCH_ARGUMENTS)

GANTRY_CUDART_API cudaError_t __cudaGetKernel(const void** place, const void* function) {
  if (is_simulated()) {
    *place = function;
    return cudaSuccess;
  }
  GANTRY_CUDART_PASS_ON(__cudaGetKernel, (place, function));
}

// `<<<…>>>` and the kernel's stub pass the shape of a launch by these.
GANTRY_CUDART_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block,
                                                       std::size_t shared_bytes,
                                                       CUstream_st* stream) {
  if (is_simulated()) return cudaSuccess;
  GANTRY_CUDART_PASS_ON(__cudaPushCallConfiguration, (grid, block, shared_bytes, stream));
}

GANTRY_CUDART_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                                         std::size_t* shared_bytes, void* stream) {
  if (is_simulated()) {
    *grid = *block = dim3();
    *shared_bytes = 0;
    *static_cast<CUstream_st**>(stream) = nullptr;
    return cudaSuccess;
  }
  GANTRY_CUDART_PASS_ON(__cudaPopCallConfiguration, (grid, block, shared_bytes, stream));
}

// nvcc writes a call of this for each kernel, which runs before main().
GANTRY_CUDART_API void __cudaRegisterFunction(void** module, const char* function, char* device,
                                              const char* name, int thread_limit, uint3* thread,
                                              uint3* block_index, dim3* block, dim3* grid,
                                              int* warp_size) {
  {
    KernelNames& names = KernelNames::all();
    const std::lock_guard lock(names.mutex);
    names.by_function[function] = name;
  }
  static auto* const next =
      next_definition<decltype(__cudaRegisterFunction)>("__cudaRegisterFunction");
  if (next == nullptr) return;
  next(module, function, device, name, thread_limit, thread, block_index, block, grid, warp_size);
}

GANTRY_CUDART_REFUSED(cudaFuncSetAttribute,
                      (const void* function, cudaFuncAttribute which, int value),
                      (function, which, value))
GANTRY_CUDART_REFUSED(cudaFuncGetAttributes, (cudaFuncAttributes * place, const void* function),
                      (place, function))
GANTRY_CUDART_REFUSED(cudaFuncSetCacheConfig, (const void* function, cudaFuncCache config),
                      (function, config))
GANTRY_CUDART_REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
                      (int* place, const void* function, int threads, std::size_t shared_bytes),
                      (place, function, threads, shared_bytes))
GANTRY_CUDART_REFUSED(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                      (int* place, const void* function, int threads, std::size_t shared_bytes,
                       unsigned flags),
                      (place, function, threads, shared_bytes, flags))
GANTRY_CUDART_REFUSED(cudaOccupancyAvailableDynamicSMemPerBlock,
                      (std::size_t * place, const void* function, int blocks, int threads),
                      (place, function, blocks, threads))
GANTRY_CUDART_REFUSED(cudaOccupancyMaxActiveClusters,
                      (int* place, const void* function, const cudaLaunchConfig_t* config),
                      (place, function, config))
GANTRY_CUDART_REFUSED(cudaGetSymbolAddress, (void** place, const void* symbol), (place, symbol))
GANTRY_CUDART_REFUSED(cudaGetSymbolSize, (std::size_t * place, const void* symbol), (place, symbol))
GANTRY_CUDART_REFUSED(cudaMemcpyToSymbol,
                      (const void* symbol, const void* src, std::size_t bytes, std::size_t offset,
                       cudaMemcpyKind kind),
                      (symbol, src, bytes, offset, kind))
GANTRY_CUDART_REFUSED(cudaMemcpyFromSymbol,
                      (void* dst, const void* symbol, std::size_t bytes, std::size_t offset,
                       cudaMemcpyKind kind),
                      (dst, symbol, bytes, offset, kind))

}  // namespace gantry::cudart_api
