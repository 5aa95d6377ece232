#include "collectives/coalesce.hpp"

#include <array>

#include <gantry/tensor/factories.hpp>

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
  std::vector<Tensor> views = views_of_bucket(bucket, flat, tensors);
  for (std::size_t i = 0; i < views.size(); ++i) views[i].copy_(tensors[bucket.members[i]]);
  return flat;
}

std::vector<Tensor> views_of_bucket(const Bucket& bucket, const Tensor& flat,
                                    std::span<const Tensor> shapes) {
  std::vector<Tensor> views;
  std::int64_t offset = 0;
  for (const std::size_t member : bucket.members) {
    const Tensor& shape = shapes[member];
    views.push_back(flat.narrow(0, offset, shape.numel()).view(shape.sizes()));
    offset += shape.numel();
  }
  return views;
}

void unflatten_bucket(const Bucket& bucket, const Tensor& flat, std::span<Tensor> tensors) {
  const std::vector<Tensor> views = views_of_bucket(bucket, flat, tensors);
  for (std::size_t i = 0; i < views.size(); ++i) tensors[bucket.members[i]].copy_(views[i]);
}

}  // namespace gantry
