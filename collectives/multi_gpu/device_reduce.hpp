#pragma once

#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/reduction.hpp"

namespace gantry {

// Reduces any number of `inputs` into `out`, in list order. Inputs are contiguous, of out's shape
// and dtype, on any devices; `out` may be one of them. Ordered with the current streams of all
// devices before and after: inputs may be overwritten on their own streams at once.
void reduce_into(const Tensor& out, std::span<const Tensor> inputs, const Reduction& how);

// Reduces all tensors in place, so that each holds the result. They are contiguous, on any devices,
// and share no memory. Ordered as reduce_into().
void reduce_into_all(std::span<const Tensor> tensors, const Reduction& how);

// Several reductions with equally many inputs and one dtype, which share their stream waits.
// Requires fits_passes().
struct ReduceGroup {
  DType dtype = DType::f32;
  std::vector<kernels::NaryItem> runs;
  std::vector<const void*> inputs;  // of run 0, of run 1, …

  [[nodiscard]] std::int64_t elements() const;
};

// Runs all groups, which read memory of `sources` and write memory of `destination`, on current
// streams. Ordered as reduce_into(). Requires: `destination` reaches all sources, and all memory is
// peer-accessible.
void reduce_groups(Device destination, std::span<const ReduceGroup> groups,
                   std::span<const Device> sources, const Reduction& how);

}  // namespace gantry
