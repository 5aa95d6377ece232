#pragma once

#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

// Note [Spare outputs]
// A new output belongs to its own device's stream, the home, but another device's stream writes it.
// The memory may have been freed a moment ago with work of the home stream still using it, so the
// writer has to wait for the home stream: for a small collective that is a third of its cost.
// Memory that was idle at the writer's last wait for the home stream, and that nobody had since,
// needs no wait. So when outputs of one size come again on the same streams, one wait covers
// several of them: the others are kept for the next calls of the same thread. They are ordinary
// blocks of the caching allocator, at most CommTuning::unmapped_bytes for each size and pair of
// streams, count as allocated, and go back when memory runs short or the cache is emptied. In
// captures, with allocators or pools of the user's, and on streams that gantry does not own, there
// are none.

// The new outputs of one call, all written by one stream.
class FreshOutputs {
 public:
  explicit FreshOutputs(const Stream& writer);
  FreshOutputs(const FreshOutputs&) = delete;
  FreshOutputs& operator=(const FreshOutputs&) = delete;

  // A contiguous tensor on home's device that belongs to `home`. Throws: OutOfMemoryError.
  [[nodiscard]] Tensor make(const Shape& sizes, DType dtype, const Stream& home);
  // Makes the writer wait for the homes of outputs that may be in use; after the last make().
  void order();

 private:
  struct Kept {
    std::size_t bytes;
    Stream home;
    std::vector<Storage> storages;
  };

  const Stream writer_;
  const bool is_eligible_;
  std::vector<Stream> homes_;
  std::vector<Kept> kept_;  // spares once order() is done
};

// Gives the calling thread's spare outputs back.
void release_spare_outputs();

}  // namespace gantry
