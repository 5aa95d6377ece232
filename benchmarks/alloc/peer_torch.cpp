// PyTorch's caching allocator through its C++ API; PYTORCH_CUDA_ALLOC_CONF configures it.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include "peer.hpp"

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

class TorchPeer {
 public:
  using Handle = void*;
  TorchPeer() {
    caching::init(c10::cuda::device_count());
    c10::cuda::set_device(0);
    std::size_t free_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_);
  }
  void begin(std::uint64_t limit_bytes) {
    caching::emptyCache();
    const double fraction =
        limit_bytes == 0 ? 1.0 : static_cast<double>(limit_bytes) / static_cast<double>(total_);
    caching::get()->setMemoryFraction(std::min(1.0, fraction), 0);
    caching::get()->resetPeakStats(0);
  }
  Handle allocate(std::size_t bytes) {
    try {
      return caching::raw_alloc(bytes);
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
  }
  void free(Handle handle, std::size_t) { caching::raw_delete(handle); }
  static bool is_empty(Handle handle) { return handle == nullptr; }
  std::uint64_t peak_reserved() {
    // Entry 0 is the sum over the pools.
    return static_cast<std::uint64_t>(caching::get()->getDeviceStats(0).reserved_bytes[0].peak);
  }

 private:
  std::size_t total_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    TorchPeer peer;
    return gantry::benchmarks::peer_main(argc, argv, peer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
