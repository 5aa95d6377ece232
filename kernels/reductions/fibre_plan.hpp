#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/reductions/merge_counters.hpp"
#include "kernels/reductions/reduce.hpp"
#include "kernels/strided_index.hpp"

namespace gantry::kernels {

// The 1-D fibres of a tensor along one dim. Fibre i begins at data + outer.offset(i); its elements
// are `stride` apart. A POD.
struct Fibres {
  void* data = nullptr;
  StridedIndex outer;  // the other dims
  std::int64_t stride = 0;
};

// The plan of an operation along one dim. A POD.
struct FibrePlan {
  DType dtype = DType::f32;
  std::int64_t count = 0;   // fibres
  std::int64_t length = 0;  // elements per fibre of `in`
  Fibres in;
  Fibres out;  // arg_reduce: the values; null data if the caller has no use for them

  // True if neighbouring fibres are closer together than the elements of one fibre.
  [[nodiscard]] bool is_column_wise() const {
    const std::int32_t last = in.outer.ndim - 1;
    const std::int64_t between = last < 0 ? INT64_MAX : in.outer.strides[last];
    return (between < 0 ? -between : between) < (in.stride < 0 ? -in.stride : in.stride);
  }
};

[[nodiscard]] FibrePlan make_fibre_plan(const TensorRef& out, const TensorRef& in, int dim);

// The same plan with fewer outer dims, where two are dense in both operands.
[[nodiscard]] FibrePlan with_merged_dims(const FibrePlan& plan);

// The fibres of `tensor`, in the order of make_fibre_plan(…, in, dim).
[[nodiscard]] Fibres fibres_like(const TensorRef& tensor, const TensorRef& in, int dim);

// Units of a group of Note [Scan order].
inline constexpr int kScanGroupBits = 4;
inline constexpr int kScanGroup = 1 << kScanGroupBits;
// Elements of a tile of Note [Restarted scans]; one block of a GPU scans one.
inline constexpr std::int64_t kScanTile = 4096;

// True if a total may exceed the accumulator though no running value does.
[[nodiscard]] constexpr bool restarts(ScanOp op, DType dtype) {
  switch (op) {
    case ScanOp::sum:
      return dtype == DType::bf16 || dtype == DType::f64;
    case ScanOp::product:
      return is_floating_point(dtype);
    case ScanOp::log_sum_exp:
      return false;
  }
  return false;
}

namespace host {
void arg_reduce(bool largest, const FibrePlan& plan, const Fibres& indices);
void scan(ScanOp op, const FibrePlan& plan);
void softmax(bool logarithm, const FibrePlan& plan);
}  // namespace host

namespace cuda {
// Elements of a fibre that one block of arg_reduce reduces.
[[nodiscard]] std::int64_t arg_chunk_length(const FibrePlan& plan);

// The results of chunks, which the last block of a fibre merges. Unused if a fibre has one chunk.
struct ArgPartials {
  std::int64_t chunk_length = 0;
  std::int64_t chunks = 1;             // per fibre
  std::int64_t* candidates = nullptr;  // the index of chunk c of fibre f is [f * chunks + c]
  MergeCounters counters;
};

void arg_reduce(void* stream, bool largest, const FibrePlan& plan, const Fibres& indices,
                const ArgPartials& partials);

// Bytes of scratch memory that scan needs; 0 if it needs none.
[[nodiscard]] std::size_t scan_scratch_bytes(const FibrePlan& plan);
void scan(void* stream, ScanOp op, const FibrePlan& plan, void* scratch);

// Bytes of scratch memory that softmax needs; 0 if it needs none.
[[nodiscard]] std::size_t softmax_scratch_bytes(const FibrePlan& plan);
void softmax(void* stream, bool logarithm, const FibrePlan& plan, void* scratch);
}  // namespace cuda

}  // namespace gantry::kernels
