#include "collectives/multi_gpu/coalesce.hpp"

#include <array>
#include <utility>

#include <gantry/tensor/factories.hpp>

#include "kernels/peers/multicast.hpp"
#include "tensor/impl/buffer_views.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

std::vector<Bucket> make_buckets(std::span<const Tensor> tensors, std::size_t bytes) {
  std::vector<Bucket> buckets;
  std::array<std::ptrdiff_t, kDTypeCount> open;
  open.fill(-1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    std::ptrdiff_t& current = open[static_cast<std::size_t>(tensor.dtype())];
    const std::size_t width = tensor.element_size();
    const bool fits = current >= 0 &&
                      static_cast<std::size_t>(buckets[static_cast<std::size_t>(current)].elements +
                                               tensor.numel()) <= bytes / width;
    if (!fits) {
      current = static_cast<std::ptrdiff_t>(buckets.size());
      buckets.push_back({.dtype = tensor.dtype(), .elements = 0, .members = {}});
    }
    Bucket& bucket = buckets[static_cast<std::size_t>(current)];
    bucket.elements += tensor.numel();
    bucket.members.push_back(i);
  }
  return buckets;
}

Tensor flatten_bucket(const Bucket& bucket, std::span<const Tensor> tensors) {
  const Tensor& first = tensors[bucket.members.front()];
  const Tensor flat = empty({bucket.elements}, {.dtype = bucket.dtype, .device = first.device()});
  auto* place = static_cast<std::byte*>(flat.data());
  std::vector<Tensor> dense;  // keeps temporaries until their copies are submitted
  std::vector<CopyRegion> runs;
  dense.reserve(bucket.members.size());
  runs.reserve(bucket.members.size());
  for (const std::size_t member : bucket.members) {
    dense.push_back(tensors[member].contiguous());
    runs.push_back({dense.back().data(), place, dense.back().nbytes()});
    place += dense.back().nbytes();
  }
  kernels::multicast(detail::target_of(first), runs);
  return flat;
}

void unflatten_bucket(const Bucket& bucket, const Tensor& flat, std::span<Tensor> tensors) {
  std::int64_t offset = 0;
  std::vector<CopyRegion> runs;
  runs.reserve(bucket.members.size());
  for (const std::size_t member : bucket.members) {
    Tensor& tensor = tensors[member];
    const std::int64_t begin = offset;
    offset += tensor.numel();
    if (tensor.is_contiguous()) {
      runs.push_back({static_cast<std::byte*>(flat.data()) +
                          static_cast<std::size_t>(begin) * flat.element_size(),
                      tensor.data(), tensor.nbytes()});
    } else {
      tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    }
  }
  kernels::multicast(detail::target_of(flat), runs);
}

PaddedBucket pad_bucket(Bucket bucket, std::span<const Tensor> tensors) {
  // Copy and reduction kernels use 16-byte accesses if all addresses are aligned.
  const auto grain = static_cast<std::int64_t>(16 / element_size(bucket.dtype));
  PaddedBucket padded;
  padded.offsets.reserve(bucket.members.size());
  for (const std::size_t member : bucket.members) {
    padded.offsets.push_back(padded.elements);
    padded.elements += (tensors[member].numel() + grain - 1) / grain * grain;
  }
  padded.bucket = std::move(bucket);
  return padded;
}

void view_bucket(const PaddedBucket& padded, const Tensor& flat, std::span<const Tensor> shapes,
                 std::span<Tensor> out) {
  std::vector<detail::BufferView> views(padded.offsets.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const std::size_t member = padded.bucket.members[i];
    views[i] = {&shapes[member], padded.offsets[i], &out[member]};
  }
  detail::view_buffer(flat.storage(), flat.dtype(), views);
}

}  // namespace gantry
