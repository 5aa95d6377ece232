#pragma once

#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/folding.hpp"

namespace gantry {

// out = left fold of `inputs`, contiguous device tensors of out's shape and dtype on any devices,
// in order. Ordered with the current streams of all devices involved, both ways: inputs may be
// overwritten on their own streams at once. `out` may be one of the inputs.
void fold_onto(const Tensor& out, std::span<const Tensor> inputs, const Folding& how);

// Every tensor (contiguous, on any devices, apart from each other) becomes the fold of all, in
// place. Ordered as fold_onto.
void fold_into_all(std::span<const Tensor> tensors, const Folding& how);

// Several folds of equally many inputs and one dtype, which share their order with streams.
struct FoldGroup {
  DType dtype = DType::f32;
  std::vector<kernels::NaryItem> runs;
  std::vector<const void*> inputs;  // of run 0, of run 1, …

  [[nodiscard]] std::int64_t elements() const;
};

// Runs all groups, which read memory of `sources` and write memory of `destination`, all on their
// current streams. Ordered as fold_onto. The destination reaches all sources, and all the memory is
// open to peers.
void fold_groups(Device destination, std::span<const FoldGroup> groups,
                 std::span<const Device> sources, const Folding& how);

}  // namespace gantry
