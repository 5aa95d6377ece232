#include "collectives/multi_gpu/buckets.hpp"

#include <algorithm>
#include <array>

#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/call.hpp"
#include "kernels/peers/multicast.hpp"
#include "tensor/impl/buffer_views.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

std::vector<Bucket> make_buckets(std::span<const Tensor> tensors, std::size_t bytes,
                                 std::size_t alignment) {
  std::vector<Bucket> buckets;
  std::array<std::ptrdiff_t, kDTypeCount> open;
  open.fill(-1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const std::size_t width = tensor.element_size();
    const auto grain = static_cast<std::int64_t>(std::max<std::size_t>(alignment / width, 1));
    std::ptrdiff_t& current = open[static_cast<std::size_t>(tensor.dtype())];
    const auto end_in = [&](const Bucket& bucket) { return bucket.elements + tensor.numel(); };
    if (current < 0 || static_cast<std::size_t>(
                           end_in(buckets[static_cast<std::size_t>(current)])) > bytes / width) {
      current = static_cast<std::ptrdiff_t>(buckets.size());
      buckets.emplace_back().dtype = tensor.dtype();
    }
    Bucket& bucket = buckets[static_cast<std::size_t>(current)];
    bucket.members.push_back(i);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements = (end_in(bucket) + grain - 1) / grain * grain;
  }
  return buckets;
}

Tensor flatten_bucket(const Bucket& bucket, std::span<const Tensor> tensors) {
  const Tensor& first = tensors[bucket.members.front()];
  const Tensor flat = empty({bucket.elements}, {.dtype = bucket.dtype, .device = first.device()});
  std::vector<Tensor> dense;  // keeps temporaries until their copies are submitted
  std::vector<CopyRegion> runs;
  dense.reserve(bucket.members.size());
  runs.reserve(bucket.members.size());
  for (std::size_t i = 0; i < bucket.members.size(); ++i) {
    dense.push_back(tensors[bucket.members[i]].contiguous());
    runs.push_back({dense.back().data(), element(flat, bucket.offsets[i]), dense.back().nbytes()});
  }
  kernels::multicast(detail::target_of(first), runs);
  return flat;
}

void unflatten_bucket(const Bucket& bucket, const Tensor& flat, std::span<Tensor> tensors) {
  std::vector<CopyRegion> runs;
  runs.reserve(bucket.members.size());
  for (std::size_t i = 0; i < bucket.members.size(); ++i) {
    const Tensor& tensor = tensors[bucket.members[i]];
    const std::int64_t begin = bucket.offsets[i];
    if (tensor.is_contiguous()) {
      runs.push_back({element(flat, begin), tensor.data(), tensor.nbytes()});
    } else {
      tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    }
  }
  kernels::multicast(detail::target_of(flat), runs);
}

void view_bucket(const Bucket& bucket, const Tensor& flat, std::span<const Tensor> shapes,
                 std::span<Tensor> out) {
  std::vector<detail::BufferView> views(bucket.members.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    const std::size_t member = bucket.members[i];
    views[i] = {&shapes[member], bucket.offsets[i], &out[member]};
  }
  detail::view_buffer(flat.storage(), flat.dtype(), views);
}

}  // namespace gantry
