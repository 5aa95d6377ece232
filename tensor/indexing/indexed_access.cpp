#include "tensor/indexing/indexed_access.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/indexing/compaction.hpp"
#include "kernels/indexing/indexing.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/indexing/mask_count.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {

namespace {

// The shape of an index list's entry in the broadcast.
Shape index_shape(const IndexedDims& dims) {
  return dims.is_mask || !dims.index.defined() ? Shape{dims.found} : dims.index.sizes();
}

[[noreturn]] void throw_no_broadcast(std::string_view op, const std::vector<IndexedDims>& indices,
                                     Device device) {
  std::string shapes;
  for (const IndexedDims& dims : indices) {
    for (int d = 0; d < std::max(dims.count, 1); ++d) {
      shapes += (shapes.empty() ? "" : ", ") + index_shape(dims).str();
    }
  }
  throw IndexError(
      fmt::format("{}: shape mismatch: indexing tensors could not be broadcast together with "
                  "shapes {}",
                  op, shapes),
      device.str());
}

Shape broadcast_indices(std::string_view op, const std::vector<IndexedDims>& indices,
                        Device device) {
  Shape result;
  for (const IndexedDims& dims : indices) {
    const Shape shape = index_shape(dims);
    while (result.size() < shape.size()) result.insert(0, 1);
    const int lead = result.size() - shape.size();
    for (int d = 0; d < shape.size(); ++d) {
      std::int64_t& size = result[lead + d];
      if (size != shape[d] && size != 1 && shape[d] != 1) throw_no_broadcast(op, indices, device);
      if (size == 1) size = shape[d];
    }
  }
  return result;
}

bool is_indexed(const GatherPlan& plan, int dim) {
  return std::any_of(plan.indices.begin(), plan.indices.end(), [dim](const IndexedDims& dims) {
    return dim >= dims.dim && dim < dims.dim + dims.count;
  });
}

// The sizes of the result with one dim for all index dims.
Shape flat_sizes(const GatherPlan& plan) {
  Shape result;
  for (int d = 0; d < plan.view.sizes.size(); ++d) {
    if (!is_indexed(plan, d)) result.push_back(plan.view.sizes[d]);
  }
  result.insert(plan.index_dim, plan.index_sizes.product());
  return result;
}

int tensor_count(const GatherPlan& plan) {
  return static_cast<int>(
      std::count_if(plan.indices.begin(), plan.indices.end(),
                    [](const IndexedDims& dims) { return dims.index.defined(); }));
}

// The only tensor of the plan, if it holds positions and no other tensor does; else null.
const IndexedDims* single_index(const GatherPlan& plan) {
  if (tensor_count(plan) != 1) return nullptr;
  const auto it = std::find_if(plan.indices.begin(), plan.indices.end(),
                               [](const IndexedDims& dims) { return dims.index.defined(); });
  return it->is_mask ? nullptr : &*it;
}

// The operands of kernels::index_select and index_scatter: a 1-D index, and the view with one dim
// in place of the indexed ones.
struct FlatAccess {
  Tensor index;
  kernels::IndexUse use;
  TensorRef view;
};

// Makes the FlatAccess of a plan. One index tensor is used as it is. Otherwise a kernel adds up the
// offsets of all: the common divisor of the indexed dims' strides is their unit, so that rows can
// still move as larger words.
class Flattener {
 public:
  Flattener(const char* op, const Tensor& view, const GatherPlan& plan)
      : op_(op), view_(view), plan_(plan) {}

  FlatAccess run() {
    FlatAccess result;
    if (const IndexedDims* single = single_index(plan_)) {
      result.index = flat(single->index);
      result.use = {op_, kernels::IndexRule::wrapping, single->source_dim};
      result.view = with_dim(view_.size(single->dim), view_.stride(single->dim));
      return result;
    }
    measure();
    result.index = offsets();
    result.use = {op_, kernels::IndexRule::offsets, 0};
    result.view = with_dim(extent_, unit_);
    return result;
  }

 private:
  Tensor flat(const Tensor& index) const { return index.expand(plan_.index_sizes).reshape({-1}); }

  // The view with one dim in place of the indexed ones.
  TensorRef with_dim(std::int64_t size, std::int64_t stride) const {
    TensorRef result = view_.ref();
    result.ndim = 0;
    const auto append = [&](std::int64_t length, std::int64_t step) {
      result.sizes[result.ndim] = length;
      result.strides[result.ndim] = step;
      ++result.ndim;
    };
    for (int d = 0; d < view_.dim(); ++d) {
      if (result.ndim == plan_.index_dim && !placed(result)) append(size, stride);
      if (!is_indexed(plan_, d)) append(view_.size(d), view_.stride(d));
    }
    if (!placed(result)) append(size, stride);
    return result;
  }
  bool placed(const TensorRef& ref) const { return ref.ndim > plan_.index_dim; }

  void measure() {
    unit_ = 0;
    std::int64_t last = 0;
    for (int d = 0; d < view_.dim(); ++d) {
      if (!is_indexed(plan_, d) || view_.size(d) <= 1) continue;
      unit_ = std::gcd(unit_, view_.stride(d));
      last += (view_.size(d) - 1) * view_.stride(d);
    }
    unit_ = std::max<std::int64_t>(unit_, 1);
    extent_ = last / unit_ + 1;
  }

  kernels::OffsetTerm offsets_term(const Tensor& offsets) const {
    return {broadcast_ref(offsets, plan_.index_sizes),
            {op_, kernels::IndexRule::offsets, 0},
            extent_,
            1};
  }

  Tensor offsets() const {
    const kernels::Target target = target_of(view_);
    const TensorOptions options{.dtype = DType::i64, .device = view_.device()};
    std::vector<kernels::OffsetTerm> terms;
    std::vector<Tensor> kept;  // the masks' offsets
    for (const IndexedDims& dims : plan_.indices) {
      if (!dims.index.defined()) continue;
      if (!dims.is_mask) {
        terms.push_back({broadcast_ref(dims.index, plan_.index_sizes),
                         {op_, kernels::IndexRule::wrapping, dims.source_dim},
                         view_.size(dims.dim),
                         view_.stride(dims.dim) / unit_});
        continue;
      }
      Dims strides;
      for (int d = 0; d < dims.count; ++d) strides.push_back(view_.stride(dims.dim + d) / unit_);
      const Tensor offsets = empty({dims.found}, options);
      kernels::write_offsets(target, offsets.ref(), dims.index.ref(), strides.data(),
                             dims.selection.ref(), dims.found);
      kept.push_back(offsets);
      terms.push_back(offsets_term(offsets));
    }
    if (terms.size() == 1) return flat(kept.front());
    const Tensor sum = empty(plan_.index_sizes, options);
    kernels::index_offsets(target, sum.ref(), terms[0], &terms[1]);
    for (std::size_t k = 2; k < terms.size(); ++k) {
      kernels::index_offsets(target, sum.ref(), offsets_term(sum), &terms[k]);
    }
    return sum.view({-1});
  }

  const char* op_;
  const Tensor& view_;
  const GatherPlan& plan_;
  std::int64_t unit_ = 1;
  std::int64_t extent_ = 1;
};

}  // namespace

GatherPlan plan_gather(std::string_view op, ParsedIndices parsed, Device device) {
  GatherPlan plan;
  plan.view = parsed.view;
  plan.indices = std::move(parsed.indexed);
  for (IndexedDims& dims : plan.indices) {
    if (!dims.index.defined()) continue;
    dims.is_moved = dims.index.device() != device;
    if (!dims.is_mask) continue;
    dims.index = dims.index.to(device);
    const MaskCount count = count_mask(dims.index);
    dims.found = count.found;
    dims.selection = count.selection;
  }
  plan.index_sizes = broadcast_indices(op, plan.indices, device);
  int covered = 0;
  bool has_empty_dim = false;
  for (const IndexedDims& dims : plan.indices) {
    covered += dims.count;
    for (int d = dims.dim; d < dims.dim + dims.count; ++d) {
      has_empty_dim = has_empty_dim || plan.view.sizes[d] == 0;
    }
  }
  if (has_empty_dim && plan.index_sizes.product() != 0) {
    throw IndexError(fmt::format("{}: index is out of bounds for dimension with size 0", op),
                     device.str());
  }
  const int first = plan.indices.front().dim;
  const int end = plan.indices.back().dim + plan.indices.back().count;
  plan.index_dim = end - first == covered ? first : 0;
  for (int d = 0; d < plan.view.sizes.size(); ++d) {
    if (!is_indexed(plan, d)) plan.sizes.push_back(plan.view.sizes[d]);
  }
  for (int d = 0; d < plan.index_sizes.size(); ++d) {
    plan.sizes.insert(plan.index_dim + d, plan.index_sizes[d]);
  }
  (void)checked_numel(op, plan.sizes);
  return plan;
}

void move_indices(GatherPlan& plan, Device device) {
  for (IndexedDims& dims : plan.indices) {
    if (!dims.is_moved || dims.index.device() == device) continue;
    if (!dims.index.is_cpu() || dims.index.numel() == 0) {
      dims.index = dims.index.to(device);
      continue;
    }
    // The host need not wait for the copy of a copy.
    const Tensor staged = empty(dims.index.sizes(), {.dtype = dims.index.dtype(), .pinned = true});
    staged.copy_(dims.index);
    dims.index = staged.to(device, {.non_blocking = true});
  }
}

bool is_packed(const GatherPlan& plan) {
  return plan.indices.size() == 1 && plan.indices.front().is_mask &&
         plan.indices.front().count == plan.view.sizes.size();
}

std::int64_t temporary_bytes(const GatherPlan& plan) {
  constexpr std::int64_t kOffsetBytes = 8;
  std::int64_t bytes = 0;
  for (const IndexedDims& dims : plan.indices) {
    if (dims.is_moved) bytes += static_cast<std::int64_t>(dims.index.nbytes());
    if (!dims.is_mask) continue;
    bytes += static_cast<std::int64_t>(dims.selection.nbytes());
    if (!is_packed(plan)) bytes += dims.found * kOffsetBytes;
  }
  const std::int64_t positions = plan.index_sizes.product();
  if (const IndexedDims* single = single_index(plan)) {
    const Tensor expanded = single->index.expand(plan.index_sizes);
    if (!view_strides(expanded.sizes(), expanded.strides(), {positions})) {
      bytes += positions * static_cast<std::int64_t>(single->index.element_size());
    }
  } else if (tensor_count(plan) > 1) {
    bytes += positions * kOffsetBytes;
  }
  return bytes;
}

void gather_indexed(const Tensor& out, const Tensor& view, const GatherPlan& plan) {
  if (out.numel() == 0) return;
  const kernels::Target target = target_of(view);
  if (is_packed(plan)) {
    const IndexedDims& mask = plan.indices.front();
    kernels::pack_masked("index", target, out.ref(), view.ref(), mask.index.ref(),
                         mask.selection.ref(), mask.found);
    return;
  }
  const FlatAccess access = Flattener("index", view, plan).run();
  kernels::index_select(access.use, target, out.view(flat_sizes(plan)).ref(), access.view,
                        plan.index_dim, access.index.ref());
}

void scatter_indexed(const Tensor& view, const ScatterPlan& plan, const Tensor& source) {
  if (source.numel() == 0) return;
  const GatherPlan& places = plan.places;
  const kernels::Target target = target_of(view);
  if (is_packed(places) && !plan.accumulate) {
    const IndexedDims& mask = places.indices.front();
    kernels::unpack_masked("index_put_", target, view.ref(), source.ref(), mask.index.ref(),
                           mask.selection.ref(), mask.found);
    return;
  }
  const FlatAccess access = Flattener("index_put_", view, places).run();
  const Tensor flat = source.reshape(flat_sizes(places));
  kernels::index_scatter(
      access.use, target, access.view, places.index_dim, access.index.ref(), flat.ref(),
      plan.accumulate ? kernels::ScatterMode::add : kernels::ScatterMode::replace);
}

}  // namespace gantry::detail
