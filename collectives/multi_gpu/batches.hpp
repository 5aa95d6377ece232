#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/multi_gpu/call.hpp"
#include "collectives/reduction.hpp"
#include "kernels/peers/multicast.hpp"

namespace gantry {

// Copies to receivers with one layout. Each run is copied to its `to`, and to `to + shift` for
// every shift.
struct MulticastBatch {
  explicit MulticastBatch(std::pmr::memory_resource* memory) : runs(memory), shifts(memory) {}
  [[nodiscard]] std::size_t bytes() const;

  std::pmr::vector<CopyRegion> runs;
  std::pmr::vector<std::ptrdiff_t> shifts;
};

// Copies runs on `stream`, whose device reaches both ends of each. Copy engines copy
// `by_engines_from` bytes or more, a kernel copies less.
void copy_by_size(const Stream& stream, std::span<const CopyRegion> runs,
                  std::size_t by_engines_from);

// Copies all batches from memory of the root to memory of the call's other devices, as
// MultiDeviceCall::run(). Requires: is_direct().
void multicast(MultiDeviceCall& call, std::span<const MulticastBatch> batches,
               MultiDeviceCall::Operands operands, CachedOutputs* cached);

// Reduces any number of `inputs` into `out`, in list order. Inputs are contiguous, of out's shape
// and dtype, on any devices; `out` may be one of them. The inputs are the call's operands, and
// out's device is its root. Ordered as MultiDeviceCall::run(): inputs may be overwritten on their
// own streams at once.
void reduce_into(MultiDeviceCall& call, const Tensor& out, std::span<const Tensor> inputs,
                 const NaryReduction& how);

// Several reductions with equally many inputs and one dtype. Requires fits_passes().
struct ReduceBatch {
  ReduceBatch(DType type, std::pmr::memory_resource* memory)
      : dtype(type), runs(memory), inputs(memory) {}
  [[nodiscard]] std::int64_t elements() const;

  DType dtype;
  std::pmr::vector<kernels::NaryItem> runs;
  std::pmr::vector<const void*> inputs;  // of run 0, of run 1, …
};

// Runs all batches, which read memory of the call's devices and write to `outputs` of its root,
// with shared stream waits. Requires: is_direct() and is_open(), also for the outputs.
void reduce_batches(MultiDeviceCall& call, std::span<const ReduceBatch> batches,
                    std::span<const Tensor> outputs, const NaryReduction& how);

}  // namespace gantry
