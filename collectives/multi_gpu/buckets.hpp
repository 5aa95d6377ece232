#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gantry/tensor/tensor.hpp>

namespace gantry {

// Tensors of one dtype that are transferred as one flat array.
struct Bucket {
  DType dtype = DType::f32;
  std::int64_t elements = 0;          // with the gaps between members
  std::vector<std::size_t> members;   // positions in the list, in order
  std::vector<std::int64_t> offsets;  // of the members, in elements
};

// Groups tensors into buckets of one dtype and at most `bytes`, in list order per dtype. A larger
// tensor has its own bucket. Members begin at multiples of `alignment` bytes. The result depends on
// dtypes and sizes only, so equal lists give equal buckets on every device and rank.
std::vector<Bucket> make_buckets(std::span<const Tensor> tensors, std::size_t bytes,
                                 std::size_t alignment = 1);

// Returns a new flat tensor of the bucket's concatenated members, on the first member's device.
// Requires: a bucket without gaps.
Tensor flatten_bucket(const Bucket& bucket, std::span<const Tensor> tensors);

// Copies `flat` back into the bucket's members.
void unflatten_bucket(const Bucket& bucket, const Tensor& flat, std::span<Tensor> tensors);

// out[m] = the view of `flat` for each member m, shaped like shapes[m].
void view_bucket(const Bucket& bucket, const Tensor& flat, std::span<const Tensor> shapes,
                 std::span<Tensor> out);

}  // namespace gantry
