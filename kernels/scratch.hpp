#pragma once

#include <cstddef>
#include <memory>

#include <gantry/memory/buffer.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Temporary memory of one kernel call, on the target. On a stream it may be freed once its kernels
// are submitted: the next owner's work follows on the same stream.
class Scratch {
 public:
  Scratch() = default;
  // Without memory if `bytes` is 0.
  Scratch(const Target& target, std::size_t bytes) {
    if (bytes == 0) return;
    if (target.is_cpu()) {
      host_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    } else {
      device_ = memory::allocate(target.stream(), bytes);
    }
  }

  void* data() const { return host_ ? host_.get() : device_.data(); }

 private:
  std::unique_ptr<std::byte[]> host_;
  memory::Buffer device_;
};

}  // namespace gantry::kernels
