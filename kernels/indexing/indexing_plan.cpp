#include "kernels/indexing/indexing_plan.hpp"

#include <cstdint>

namespace gantry::kernels {

namespace {

// Merges the dims behind `dim` that lie densely in both tensors and share one index into the first
// of them. Returns the innermost dim, or -1 if it is not dense.
int merge_inner_dims(TensorRef& direct, TensorRef& indexed, TensorRef& index, int dim) {
  int inner = direct.ndim - 1;
  const auto lies_at = [&](int d, std::int64_t stride) {
    return d > dim && direct.strides[d] == stride && indexed.strides[d] == stride &&
           index.strides[d] == 0;
  };
  if (!lies_at(inner, 1)) return -1;
  while (lies_at(inner - 1, direct.sizes[inner]) && indexed.sizes[inner] == direct.sizes[inner]) {
    for (TensorRef* tensor : {&direct, &indexed, &index}) {
      tensor->sizes[inner - 1] *= tensor->sizes[inner];
      tensor->strides[inner - 1] = tensor->strides[inner];
      tensor->ndim = inner;
    }
    --inner;
  }
  return inner;
}

// The largest words, of at most 16 bytes, in which the rows behind `dim` can move: the alignment of
// every row allows them. Returns their bytes, or 0 if no words are larger than the elements.
int widen(TensorRef& direct, TensorRef& indexed, TensorRef& index, int dim) {
  const int inner = merge_inner_dims(direct, indexed, index, dim);
  if (inner < 0) return 0;
  const auto bytes = static_cast<std::int64_t>(element_size(direct.dtype));
  // Every beginning of a row, in bytes, is a multiple of the words.
  auto bits = static_cast<std::uint64_t>(direct.sizes[inner] * bytes) | 16;
  for (const TensorRef* tensor : {&direct, &indexed}) {
    bits |= reinterpret_cast<std::uintptr_t>(tensor->data);
    for (int d = 0; d < inner; ++d) bits |= static_cast<std::uint64_t>(tensor->strides[d] * bytes);
  }
  const auto word = static_cast<std::int64_t>(bits & -bits);
  if (word <= bytes) return 0;
  const std::int64_t elements = word / bytes;
  for (TensorRef* tensor : {&direct, &indexed}) {
    tensor->sizes[inner] /= elements;
    for (int d = 0; d < inner; ++d) tensor->strides[d] /= elements;
  }
  index.sizes[inner] = direct.sizes[inner];
  return static_cast<int>(word);
}

}  // namespace

IndexingPlan make_indexing_plan(const IndexUse& use, const Target& target,
                                const TensorRef& direct_tensor, const TensorRef& indexed_tensor,
                                int dim, const TensorRef& index_tensor, bool moves_only) {
  TensorRef direct = direct_tensor;
  TensorRef indexed = indexed_tensor;
  TensorRef index = index_tensor;
  IndexingPlan plan;
  plan.op = use.op;
  plan.rule = use.rule;
  plan.dtype = direct.dtype;
  plan.element_bytes = static_cast<int>(element_size(direct.dtype));
  if (moves_only) {
    if (const int word = widen(direct, indexed, index, dim)) plan.element_bytes = word;
  }
  plan.direct = direct.data;
  plan.indexed = indexed.data;
  plan.indices = index.data;
  plan.is_wide = index.dtype == DType::i64;
  plan.is_checked = !use.fills_new;
  plan.dim = use.dim < 0 ? dim : use.dim;
  plan.index_size = indexed.sizes[dim];
  plan.index_stride = indexed.strides[dim];
  plan.fibre_length = direct.sizes[dim];
  plan.direct_stride = direct.strides[dim];
  plan.indices_stride = index.strides[dim];
  plan.indexed_extent = 1;
  for (int d = 0; d < indexed.ndim; ++d) {
    plan.indexed_extent += (indexed.sizes[d] - 1) * indexed.strides[d];
  }
  indexed.strides[dim] = 0;
  plan.positions =
      make_plan<3>(direct.ndim, direct.sizes, {direct.strides, indexed.strides, index.strides});
  direct.sizes[dim] = 1;
  plan.fibres =
      make_plan<3>(direct.ndim, direct.sizes, {direct.strides, indexed.strides, index.strides});
  if (!target.is_cpu()) plan.fault = driver().fault_record(target.device().index);
  return plan;
}

}  // namespace gantry::kernels
