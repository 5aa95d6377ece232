#include "kernels/indexing/indexing.hpp"

#include "device/drivers/launch_blocking.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/indexing/indexing_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

// The kernel of a scatter, which computes unless it replaces elements.
KernelName kernel_name(const IndexUse& use, ScatterMode mode) {
  return mode == ScatterMode::replace ? KernelName::moving(use.op) : KernelName(use.op);
}

void submit_gather(const IndexUse& use, const Target& target, const TensorRef& out,
                   const TensorRef& in, int dim, const TensorRef& index,
                   const TensorRef& checked_index) {
  if (out.numel() == 0) return;
  const IndexingPlan plan = make_indexing_plan(use, target, out, in, dim, index, true);
  if (target.is_cpu() && plan.is_checked) host::check_indices(plan, checked_index);
  submit(
      KernelName::moving(use.op), target, {&out, &in, &index}, [plan] { host::gather(plan); },
      [&](void* stream) { cuda::gather(stream, plan); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

// Bounds for one thread per fibre: fewer fibres leave the GPU idle, longer ones take a thread too
// long.
constexpr std::int64_t kManyFibres = 16384;
constexpr std::int64_t kShortFibre = 32;
constexpr std::int64_t kLongFibre = 16384;
constexpr std::int64_t kMostSorted = std::int64_t{1} << 31;

// True if a thread for each row is faster than a sort of all writes. In shared memory a thread
// takes about 0.14 us a write, and a sort at least 30 us. Sums of integers and replacements need
// no sort.
bool prefers_rows(const IndexingPlan& plan, ScatterMode mode) {
  constexpr std::int64_t kShortRow = 128;
  return mode != ScatterMode::replace && is_floating_point(plan.dtype) &&
         plan.fibre_length <= kShortRow && cuda::has_short_rows(plan);
}

void scatter_on_gpu(const Target& target, void* stream, const IndexingPlan& plan,
                    ScatterMode mode) {
  if (cuda::has_owners(plan, mode)) return cuda::scatter_owners(stream, plan, mode);
  const bool has_short = plan.fibre_length <= kShortFibre || prefers_rows(plan, mode);
  if (!has_short && cuda::has_tiles(plan, mode)) {
    cuda::scatter_tiles(stream, plan, mode);
    return;
  }
  if (has_short || plan.fibres.numel >= kManyFibres || plan.positions.numel >= kMostSorted) {
    cuda::scatter_fibres(stream, plan, mode);
    return;
  }
  const Scratch scratch(target, cuda::scatter_writes_bytes(plan, mode));
  cuda::scatter_writes(stream, plan, mode, scratch.data());
}

// True if the fibres are rows whose blocks all run at once, two to each of 132 multiprocessors.
// Each sorts the index as quickly as one block does, and needs no second launch.
bool has_few_rows(const IndexingPlan& plan) {
  constexpr std::int64_t kFewRows = 264;
  const bool has_columns = plan.fibres.numel > 1 && plan.fibres.strides[0][0] < plan.direct_stride;
  return plan.fibres.numel <= kFewRows && !has_columns;
}

// `index`, which is 1-D, with the sizes of `like` and stride 0 in all dims but `dim`.
TensorRef along(const TensorRef& index, const TensorRef& like, int dim) {
  TensorRef result = like;
  result.data = index.data;
  result.dtype = index.dtype;
  for (int d = 0; d < like.ndim; ++d) result.strides[d] = d == dim ? index.strides[0] : 0;
  return result;
}

void index_scatter_on_gpu(const Target& target, void* stream, const IndexingPlan& plan,
                          ScatterMode mode) {
  if (cuda::has_owners(plan, mode)) return cuda::scatter_owners(stream, plan, mode);
  if (plan.fibre_length <= kShortFibre || plan.fibre_length >= kMostSorted) {
    cuda::scatter_fibres(stream, plan, mode);
    return;
  }
  if (has_few_rows(plan) && cuda::has_tiles(plan, mode)) {
    cuda::scatter_tiles(stream, plan, mode);
    return;
  }
  // The only fibre's values can move with their keys.
  if (plan.fibres.numel == 1 && plan.fibre_length >= kLongFibre) {
    const Scratch scratch(target, cuda::scatter_writes_bytes(plan, mode));
    cuda::scatter_writes(stream, plan, mode, scratch.data());
    return;
  }
  const Scratch scratch(target, cuda::index_scatter_bytes(plan, mode));
  cuda::index_scatter(stream, plan, mode, scratch.data());
}

}  // namespace

void index_select(const IndexUse& use, const Target& target, const TensorRef& out,
                  const TensorRef& in, int dim, const TensorRef& index) {
  submit_gather(use, target, out, in, dim, along(index, out, dim), index);
}

void gather(const IndexUse& use, const Target& target, const TensorRef& out, const TensorRef& in,
            int dim, const TensorRef& index) {
  submit_gather(use, target, out, in, dim, index, index);
}

void scatter(const IndexUse& use, const Target& target, const TensorRef& out, int dim,
             const TensorRef& index, const TensorRef& in, ScatterMode mode) {
  if (index.numel() == 0) return;
  TensorRef source = in;  // only the part that `index` covers
  for (int d = 0; d < index.ndim; ++d) source.sizes[d] = index.sizes[d];
  const IndexingPlan plan =
      make_indexing_plan(use, target, source, out, dim, index, mode == ScatterMode::replace);
  if (target.is_cpu() && plan.is_checked) host::check_indices(plan, index);
  submit(
      kernel_name(use, mode), target, {&out, &index, &source},
      [plan, mode] { host::scatter(plan, mode); },
      [&](void* stream) { scatter_on_gpu(target, stream, plan, mode); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

void index_scatter(const IndexUse& use, const Target& target, const TensorRef& out, int dim,
                   const TensorRef& index, const TensorRef& in, ScatterMode mode) {
  if (in.numel() == 0) return;
  const IndexingPlan plan = make_indexing_plan(use, target, in, out, dim, along(index, in, dim),
                                               mode == ScatterMode::replace);
  if (target.is_cpu() && plan.is_checked) host::check_indices(plan, index);
  submit(
      kernel_name(use, mode), target, {&out, &index, &in},
      [plan, mode] { host::scatter(plan, mode); },
      [&](void* stream) { index_scatter_on_gpu(target, stream, plan, mode); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

void index_offsets(const Target& target, const TensorRef& out, const OffsetTerm& first,
                   const OffsetTerm* second) {
  if (out.numel() == 0) return;
  OffsetsPlan plan;
  plan.count = second == nullptr ? 1 : 2;
  plan.out = static_cast<std::int64_t*>(out.data);
  const OffsetTerm* const terms[] = {&first, second == nullptr ? &first : second};
  for (int k = 0; k < plan.count; ++k) {
    const OffsetTerm& term = *terms[k];
    IndexingPlan& part = plan.terms[k];
    part.indices = term.index.data;
    part.is_wide = term.index.dtype == DType::i64;
    part.rule = term.use.rule;
    part.op = term.use.op;
    part.dim = term.use.dim;
    part.index_size = term.size;
    part.index_stride = term.stride;
    if (!target.is_cpu()) part.fault = driver().fault_record(target.device().index);
    if (target.is_cpu()) host::check_indices(part, term.index);
  }
  plan.positions = make_plan<3>(out.ndim, out.sizes,
                                {out.strides, terms[0]->index.strides, terms[1]->index.strides});
  submit(
      first.use.op, target, {&out, &first.index, second == nullptr ? nullptr : &second->index},
      [plan] { host::index_offsets(plan); },
      [&](void* stream) { cuda::index_offsets(stream, plan); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

}  // namespace gantry::kernels
