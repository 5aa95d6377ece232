// RMM's pool_memory_resource over cudaMalloc. With a limit the pool has that size from the start,
// its best form; without one it grows as it likes.

#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <optional>

#include "peer.hpp"

namespace {

class RmmPeer {
 public:
  using Handle = void*;
  RmmPeer() { cudaSetDevice(0); }
  void begin(std::uint64_t limit_bytes) {
    pool_.reset();
    const std::size_t limit = limit_bytes / 256 * 256;
    pool_.emplace(rmm::mr::cuda_memory_resource{}, limit,
                  limit == 0 ? std::nullopt : std::optional<std::size_t>(limit));
  }
  Handle allocate(std::size_t bytes) {
    try {
      return pool_->allocate(stream_, bytes, 256);
    } catch (const rmm::bad_alloc&) {
      return nullptr;
    }
  }
  void free(Handle handle, std::size_t bytes) { pool_->deallocate(stream_, handle, bytes, 256); }
  static bool is_empty(Handle handle) { return handle == nullptr; }
  // Pools only grow.
  std::uint64_t peak_reserved() { return pool_->pool_size(); }

 private:
  cuda::stream_ref stream_{cudaStream_t{nullptr}};
  std::optional<rmm::mr::pool_memory_resource> pool_;
};

}  // namespace

int main(int argc, char** argv) {
  RmmPeer peer;
  return gantry::benchmarks::peer_main(argc, argv, peer);
}
