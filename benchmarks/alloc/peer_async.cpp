// The driver's stream-ordered pools: cudaMallocAsync and cudaFreeAsync, with a pool that keeps what
// is freed.

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "peer.hpp"

namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

class AsyncPeer {
 public:
  using Handle = void*;
  AsyncPeer() {
    check(cudaSetDevice(0));
    // A stream of its own, as programs have that use the pools.
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void begin(std::uint64_t limit_bytes) {
    check(cudaStreamSynchronize(stream_));
    if (pool_ != nullptr) check(cudaMemPoolDestroy(pool_));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, {0}};
    properties.maxSize = limit_bytes;
    check(cudaMemPoolCreate(&pool_, &properties));
    std::uint64_t keep = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  }
  Handle allocate(std::size_t bytes) {
    void* data = nullptr;
    if (cudaMallocFromPoolAsync(&data, bytes, pool_, stream_) != cudaSuccess) {
      (void)cudaGetLastError();
      return nullptr;
    }
    return data;
  }
  void free(Handle handle, std::size_t) { cudaFreeAsync(handle, stream_); }
  static bool is_empty(Handle handle) { return handle == nullptr; }
  std::uint64_t peak_reserved() {
    std::uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &bytes));
    return bytes;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    AsyncPeer peer;
    return gantry::benchmarks::peer_main(argc, argv, peer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
