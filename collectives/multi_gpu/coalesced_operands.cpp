#include "collectives/multi_gpu/coalesced_operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>

namespace gantry::comm {

void require_buffer(std::string_view op, const CoalesceOptions& options) {
  if (options.buffer_bytes != 0) return;
  throw InvalidArgument(fmt::format("{}: expected buffer_bytes > 0, but got 0", op));
}

std::vector<PaddedBucket> padded_buckets(std::span<const Tensor> tensors,
                                         const CoalesceOptions& options) {
  std::vector<PaddedBucket> padded;
  for (Bucket& bucket : make_buckets(tensors, options.buffer_bytes)) {
    padded.push_back(pad_bucket(std::move(bucket), tensors));
  }
  return padded;
}

std::byte* place_in(const Tensor& flat, std::int64_t offset) {
  return static_cast<std::byte*>(flat.data()) +
         static_cast<std::size_t>(offset) * flat.element_size();
}

std::vector<const void*> dense_addresses(std::span<const Tensor> tensors,
                                         std::vector<Tensor>& temporaries) {
  std::vector<const void*> addresses;
  addresses.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    if (tensor.is_contiguous()) {
      addresses.push_back(tensor.data());
    } else {
      temporaries.push_back(tensor.contiguous());
      addresses.push_back(temporaries.back().data());
    }
  }
  return addresses;
}

bool is_new_memory_open(std::span<const Device> devices) {
  return std::ranges::all_of(
      devices, [](Device device) { return memory::allocator(device).is_peer_accessible(); });
}

}  // namespace gantry::comm
