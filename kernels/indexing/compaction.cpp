#include "kernels/indexing/compaction.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/indexing/compaction_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

StridedIndex index_over(const TensorRef& shape, const std::int64_t* strides) {
  StridedIndex result;
  for (int d = 0; d < shape.ndim; ++d) result.append(shape.sizes[d], strides[d]);
  return result;
}

// The bits of an element that are not all zero in a non-zero element: all but a float's sign.
std::uint64_t value_bits(DType dtype) {
  const int bits = static_cast<int>(element_size(dtype)) * 8;
  const std::uint64_t all = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  return is_floating_point(dtype) ? all >> 1 : all;
}

CompactionPlan selection_plan(const TensorRef& mask, const TensorRef& selection) {
  CompactionPlan plan;
  plan.numel = mask.numel();
  plan.bits = static_cast<std::uint64_t*>(selection.data);
  plan.sums = static_cast<std::int64_t*>(selection.data) + selection_words(plan.numel);
  return plan;
}

void set_packed(CompactionPlan& plan, const TensorRef& packed, std::int64_t limit) {
  plan.packed = packed.data;
  plan.packed_stride = packed.strides[0];
  plan.element_bytes = static_cast<int>(element_size(packed.dtype));
  plan.limit = limit;
}

void submit_compaction(const char* op, const Target& target,
                       std::initializer_list<const TensorRef*> operands,
                       const CompactionPlan& plan) {
  submit(
      KernelName::moving(op), target, operands, [plan] { host::compact(plan); },
      [&](void* stream) { cuda::compact(op, stream, plan); });
}

}  // namespace

void read_mask(const Target& target, const TensorRef& selection, const TensorRef& mask) {
  CompactionPlan plan = selection_plan(mask, selection);
  if (plan.numel == 0) return;
  plan.mask = mask.data;
  plan.mask_index = index_over(mask, mask.strides);
  plan.mask_bytes = static_cast<int>(element_size(mask.dtype));
  plan.value_bits = value_bits(mask.dtype);
  submit(
      KernelName::moving("read_mask"), target, {&selection, &mask},
      [plan] { host::read_mask(plan); },
      [&](void* stream) {
        const Scratch scratch(target, cuda::read_mask_bytes(plan));
        Scratch counter;
        MergeCounters counters;
        if (cuda::sums_in_last_block(plan)) counters = merge_counters(target, 1, counter);
        cuda::read_mask(stream, plan, counters, scratch.data());
      });
}

void write_coordinates(const Target& target, const TensorRef& out, const TensorRef& mask,
                       const TensorRef& selection, std::int64_t limit) {
  if (limit == 0 || mask.ndim == 0) return;
  CompactionPlan plan = selection_plan(mask, selection);
  set_packed(plan, out, limit);
  plan.kind = CompactionKind::coordinates;
  plan.dim_stride = out.strides[1];
  plan.ndim = mask.ndim;
  for (int d = 0; d < mask.ndim; ++d) plan.sizes[d] = mask.sizes[d];
  submit_compaction("nonzero", target, {&out, &selection}, plan);
}

void write_offsets(const Target& target, const TensorRef& out, const TensorRef& mask,
                   const std::int64_t* strides, const TensorRef& selection, std::int64_t limit) {
  if (limit == 0) return;
  CompactionPlan plan = selection_plan(mask, selection);
  set_packed(plan, out, limit);
  plan.kind = CompactionKind::offsets;
  plan.places = index_over(mask, strides);
  submit_compaction("mask_offsets", target, {&out, &selection}, plan);
}

void pack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                 const TensorRef& mask, const TensorRef& selection, std::int64_t limit) {
  if (limit == 0) return;
  CompactionPlan plan = selection_plan(mask, selection);
  set_packed(plan, out, limit);
  plan.kind = CompactionKind::pack;
  plan.places = index_over(in, in.strides);
  plan.unpacked = in.data;
  submit_compaction(op, target, {&out, &in, &selection}, plan);
}

void unpack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                   const TensorRef& mask, const TensorRef& selection, std::int64_t limit) {
  if (limit == 0) return;
  CompactionPlan plan = selection_plan(mask, selection);
  set_packed(plan, in, limit);
  plan.kind = CompactionKind::unpack;
  plan.places = index_over(out, out.strides);
  plan.unpacked = out.data;
  submit_compaction(op, target, {&out, &in, &selection}, plan);
}

}  // namespace gantry::kernels
