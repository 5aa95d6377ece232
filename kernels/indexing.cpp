#include "kernels/indexing.hpp"

#include "device/launch_blocking.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/indexing_plan.hpp"
#include "kernels/scratch.hpp"

namespace gantry::kernels {

namespace {

void submit_gather(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                   int dim, const TensorRef& index, const TensorRef& checked_index) {
  if (out.numel() == 0) return;
  const IndexingPlan plan = make_indexing_plan(op, target, out, in, dim, index, true);
  if (target.is_cpu()) host::check_indices(plan, checked_index);
  submit(
      op, target, {&out, &in, &index}, [plan] { host::gather(plan); },
      [&](void* stream) { cuda::gather(stream, plan); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

// Bounds for one thread per fibre: fewer fibres leave the GPU idle, longer ones take a thread too
// long.
constexpr std::int64_t kManyFibres = 16384;
constexpr std::int64_t kShortFibre = 32;
constexpr std::int64_t kMostSorted = std::int64_t{1} << 31;

void scatter_on_gpu(const Target& target, void* stream, const IndexingPlan& plan, bool accumulate) {
  if (plan.fibre_length <= kShortFibre || plan.fibres.numel >= kManyFibres ||
      plan.positions.numel >= kMostSorted) {
    cuda::scatter_fibres(stream, plan, accumulate);
    return;
  }
  const Scratch scratch(target, cuda::scatter_sorted_bytes(plan));
  cuda::scatter_sorted(stream, plan, accumulate, scratch.data());
}

}  // namespace

void index_select(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
                  const TensorRef& index) {
  TensorRef expanded = out;
  expanded.data = index.data;
  expanded.dtype = index.dtype;
  for (int d = 0; d < out.ndim; ++d) expanded.strides[d] = d == dim ? index.strides[0] : 0;
  submit_gather("index_select", target, out, in, dim, expanded, index);
}

void gather(const Target& target, const TensorRef& out, const TensorRef& in, int dim,
            const TensorRef& index) {
  submit_gather("gather", target, out, in, dim, index, index);
}

void scatter(const Target& target, const TensorRef& out, int dim, const TensorRef& index,
             const TensorRef& in, bool accumulate) {
  if (index.numel() == 0) return;
  TensorRef source = in;  // only the part that `index` covers
  for (int d = 0; d < index.ndim; ++d) source.sizes[d] = index.sizes[d];
  const char* const op = accumulate ? "scatter_add" : "scatter";
  const IndexingPlan plan = make_indexing_plan(op, target, source, out, dim, index, !accumulate);
  if (target.is_cpu()) host::check_indices(plan, index);
  submit(
      op, target, {&out, &index, &source}, [plan, accumulate] { host::scatter(plan, accumulate); },
      [&](void* stream) { scatter_on_gpu(target, stream, plan, accumulate); });
  if (!target.is_cpu()) raise_fault_of_launch(target.stream().native());
}

}  // namespace gantry::kernels
