#include "kernels/ordering/sort.hpp"

#include <string>

#include <gantry/core/error.hpp>

#include "kernels/dispatch.hpp"
#include "kernels/layout/copy.hpp"
#include "kernels/ordering/sort_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

SortPlan make_sort_plan(const TensorRef& values, const TensorRef& indices, const TensorRef& in,
                        int dim) {
  SortPlan plan;
  plan.fibres = make_fibre_plan(values, in, dim);
  plan.indices = fibres_like(indices, in, dim);
  return plan;
}

// Note [Dense fibres]
// The elements of a fibre that is a column lie apart, and every access of one moves a whole sector.
// Kernels that sort read and write dense fibres instead, and copies turn columns into such fibres
// and back. A small tensor has all its sectors in the cache, and more launches would take longer.

// The fewest elements of columns that are copied.
constexpr std::int64_t kFewestCopied = std::int64_t{1} << 18;

bool has_columns(const Target& target, const TensorRef& tensor, int dim) {
  return !target.is_cpu() && tensor.data != nullptr && tensor.ndim > 0 &&
         make_fibre_plan(tensor, tensor, dim).is_column_wise();
}

// The sizes of `like` in new memory, with the elements of a fibre side by side.
TensorRef dense_fibres(const Target& target, const TensorRef& like, int dim, Scratch& memory) {
  memory = Scratch(target, static_cast<std::size_t>(like.numel()) * element_size(like.dtype));
  TensorRef dense = like;
  dense.data = memory.data();
  dense.strides[dim] = 1;
  std::int64_t stride = like.sizes[dim];
  for (int d = like.ndim - 1; d >= 0; --d) {
    if (d == dim) continue;
    dense.strides[d] = stride;
    stride *= like.sizes[d];
  }
  return dense;
}

// `in` as dense fibres. Long fibres are read several times.
TensorRef with_dense_fibres(const Target& target, const TensorRef& in, int dim, Scratch& memory) {
  if (!has_columns(target, in, dim) ||
      (in.sizes[dim] <= cuda::kMostSelected && in.numel() < kFewestCopied)) {
    return in;
  }
  const TensorRef dense = dense_fibres(target, in, dim, memory);
  copy(target, dense, in);
  return dense;
}

// Where a kernel writes `out`: dense fibres if the caller copies them.
TensorRef dense_output(const Target& target, const TensorRef& out, int dim, Scratch& memory) {
  if (!has_columns(target, out, dim) || out.numel() < kFewestCopied) return out;
  return dense_fibres(target, out, dim, memory);
}

// Sorts fibres of one element, by a copy, and returns true; else does nothing.
bool copy_single(const Target& target, const TensorRef& values, const TensorRef& indices,
                 const TensorRef& in, int dim) {
  if (in.ndim > 0 && in.sizes[dim] != 1) return false;
  if (values.data != nullptr) copy(target, values, in);
  if (indices.data != nullptr) fill(target, indices, 0);
  return true;
}

void sort_on_gpu(const Target& target, void* stream, const SortPlan& plan) {
  if (cuda::is_selection(plan)) {
    const Scratch scratch(target, cuda::select_scratch_bytes(plan));
    cuda::select(stream, plan, scratch.data());
  } else if (cuda::fits_block_sort(plan.fibres)) {
    cuda::sort_in_blocks(stream, plan, {});
  } else {
    const Scratch scratch(target, cuda::sort_scratch_bytes(plan));
    cuda::sort(stream, plan, scratch.data());
  }
}

}  // namespace

void check_sort_length(std::string_view op, const Target& target, std::int64_t length) {
  if (length <= kLongestSort || target.is_cpu() || platform() == Platform::simulated) return;
  throw NotSupported(std::string(op) + ": expected at most " + std::to_string(kLongestSort) +
                         " elements along the dimension on a GPU, but got " +
                         std::to_string(length),
                     target.device().str());
}

void sort(const Target& target, const TensorRef& values, const TensorRef& indices,
          const TensorRef& in, int dim, bool descending) {
  if (values.numel() == 0 || indices.numel() == 0) return;
  if (copy_single(target, values, indices, in, dim)) return;
  Scratch memory;
  Scratch values_memory;
  Scratch indices_memory;
  const TensorRef source = with_dense_fibres(target, in, dim, memory);
  const TensorRef sorted = dense_output(target, values, dim, values_memory);
  const TensorRef sorted_indices = dense_output(target, indices, dim, indices_memory);
  SortPlan plan = make_sort_plan(sorted, sorted_indices, source, dim);
  plan.largest_first = descending;
  const TensorRef& out = values.data != nullptr ? values : indices;
  plan.count = out.ndim > 0 ? out.sizes[dim] : 1;
  submit(
      {"sort", 2}, target, {&sorted, &sorted_indices, &source}, [plan] { host::sort(plan); },
      [&](void* stream) { sort_on_gpu(target, stream, plan); });
  if (sorted.data != values.data) copy(target, values, sorted);
  if (sorted_indices.data != indices.data) copy(target, indices, sorted_indices);
}

void sort_values(const Target& target, const TensorRef& values, const TensorRef& in) {
  if (values.numel() == 0) return;
  SortPlan plan = make_sort_plan(values, {}, in, 0);
  plan.count = plan.fibres.length;
  submit(
      {"sort", 2}, target, {&values, &in}, [plan] { host::sort(plan); },
      [&](void* stream) {
        if (!cuda::has_sorted_values(plan)) return sort_on_gpu(target, stream, plan);
        const Scratch scratch(target, cuda::sort_values_bytes(plan));
        cuda::sort_values(stream, plan, scratch.data());
      });
}

void select_rank(const Target& target, const TensorRef& values, const TensorRef& indices,
                 const TensorRef& in, int dim, std::int64_t rank, const TensorRef& ranks) {
  if (values.numel() == 0 || indices.numel() == 0) return;
  Scratch memory;
  const TensorRef source = with_dense_fibres(target, in, dim, memory);
  SortPlan plan = make_sort_plan(values, indices, source, dim);
  if (ranks.data != nullptr) plan.ranks = fibres_like(ranks, source, dim);
  plan.first = rank;
  plan.count = 1;
  submit(
      {"select_rank", 2}, target, {&values, &indices, &source, &ranks},
      [plan] { host::sort(plan); }, [&](void* stream) { sort_on_gpu(target, stream, plan); });
}

void cumulative_extremum(const Target& target, bool largest, const TensorRef& values,
                         const TensorRef& indices, const TensorRef& in, int dim) {
  if (in.numel() == 0 || copy_single(target, values, indices, in, dim)) return;
  SortPlan plan = make_sort_plan(values, indices, in, dim);
  plan.largest_first = largest;
  plan.count = plan.fibres.length;
  submit(
      {largest ? "cummax" : "cummin", 2}, target, {&values, &indices, &in},
      [plan] { host::cumulative_extremum(plan); },
      [&](void* stream) {
        const std::size_t bytes = cuda::cumulative_scratch_bytes(plan);
        Scratch scratch;
        if (bytes > 0) scratch = Scratch(target, bytes);
        cuda::cumulative_extremum(stream, plan, scratch.data());
      });
}

}  // namespace gantry::kernels
