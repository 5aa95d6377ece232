#pragma once

#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// Note [Cached outputs]
// A new output belongs to a stream of its own device, the owner stream. Another device's stream,
// the writer, fills it. The memory may have been freed just before, and earlier work of the owner
// stream may still use it. So the writer has to wait for the owner stream. This wait is a third of
// the cost of a small collective. Memory that was idle at the writer's last wait for the owner
// stream, and unused since, needs no new wait. When outputs of one size recur on the same streams,
// one wait therefore covers several outputs. The additional outputs are cached for later calls of
// the same thread.
// Cached outputs are blocks of the caching allocator and count as allocated. There are at most
// CommTuning::cached_output_bytes for each size and pair of streams. They are released under memory
// pressure and by empty_cache(). There are none in captures, with custom allocators or pools, and
// on external streams.

// The new outputs of one call, all written by one stream.
class CachedOutputs {
 public:
  explicit CachedOutputs(const Stream& writer);
  CachedOutputs(const CachedOutputs&) = delete;
  CachedOutputs& operator=(const CachedOutputs&) = delete;

  // Makes a contiguous tensor on owner's device that belongs to `owner`. Throws: OutOfMemoryError.
  [[nodiscard]] Tensor make(const Shape& sizes, DType dtype, const Stream& owner);
  // Makes the writer wait for the owner streams of outputs that may be in use. Call after make().
  void order();

 private:
  struct Reserve {
    std::size_t bytes;
    Stream owner;
    std::vector<Storage> storages;
  };

  const Stream writer_;
  const bool is_eligible_;
  std::vector<Stream> owners_;
  std::vector<Reserve> reserves_;  // cached by order()
};

// Releases the calling thread's cached outputs.
void release_cached_outputs();

}  // namespace gantry
