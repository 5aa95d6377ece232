#include <gantry/tensor/index_plan.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/impl/tensor_impl.hpp"
#include "tensor/indexing/index_checks.hpp"
#include "tensor/indexing/index_list.hpp"
#include "tensor/indexing/indexed_access.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

namespace {

constexpr const char* kWrite = "index_put_";

ViewPlan layout_of(const Tensor& tensor) {
  return {tensor.sizes(), tensor.strides(), tensor.storage_offset()};
}

// `value` without surplus leading dims of size 1, which an assignment ignores as in PyTorch.
Tensor without_leading_ones(Tensor value, int dims) {
  while (value.dim() > dims && value.size(0) == 1) value = value.select(0, 0);
  return value;
}

bool is_number(const Operand& value) { return !value.is_tensor() || value.tensor().dim() == 0; }

// True if a write of `value` can replace the elements that the only mask selects, without their
// number.
bool fills_mask(const detail::ParsedIndices& parsed, const Operand& value, bool accumulate) {
  return is_number(value) && !accumulate && parsed.indexed.size() == 1 &&
         parsed.indexed.front().is_mask;
}

// The mask of the only indexed dims, with a shape that broadcasts to the view.
Tensor mask_over(const detail::ParsedIndices& parsed, Device device) {
  const IndexedDims& dims = parsed.indexed.front();
  Tensor mask = dims.index.to(device);
  if (mask.dtype() == DType::u8) mask = mask.view(DType::bool_);
  for (int d = dims.dim + dims.count; d < parsed.view.sizes.size(); ++d) mask = mask.unsqueeze(-1);
  return mask;
}

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

// Bytes of the index tensors.
std::int64_t index_bytes(const GatherPlan& plan) {
  std::int64_t bytes = 0;
  for (const IndexedDims& dims : plan.indices) bytes += bytes_of(dims.index);
  return bytes;
}

// Throws unless the elements of `value` may be written through index tensors.
void check_scattered_dtype(const Tensor& self, const Operand& value) {
  if (!value.is_tensor()) {
    detail::check_fits(kWrite, value.number(), self.dtype());
  } else if (value.tensor().dtype() != self.dtype()) {
    throw DTypeError(
        fmt::format("{}: Index put requires the source and destination dtypes match, got {} for "
                    "the destination and {} for the source.",
                    kWrite, torch_name(self.dtype()), torch_name(value.tensor().dtype())),
        self.device().str());
  }
}

// Adds a number, or a 0-dim tensor, to all elements. A number is written as an element is.
void add_number(Tensor& place, const Operand& value) {
  if (!value.is_tensor()) detail::check_fits(kWrite, value.number(), place.dtype());
  const bool is_or = !value.is_tensor() && place.dtype() == DType::bool_;
  detail::add_as(kWrite, place, place, is_or ? Operand(value.number().to<bool>()) : value);
}

// Throws unless `value` broadcasts to `sizes`.
void check_scattered_shape(const Tensor& self, const Shape& sizes, const Operand& value) {
  if (!value.is_tensor()) return;
  const Tensor& source = value.tensor();
  const Tensor stripped = without_leading_ones(source, sizes.size());
  bool fits = stripped.dim() <= sizes.size();
  for (int d = 0; fits && d < stripped.dim(); ++d) {
    const std::int64_t size = stripped.size(stripped.dim() - 1 - d);
    fits = size == 1 || size == sizes[sizes.size() - 1 - d];
  }
  if (fits) return;
  throw ShapeError(
      fmt::format("{}: shape mismatch: value tensor of shape {} cannot be broadcast to "
                  "indexing result of shape {}",
                  kWrite, source.sizes().str(), sizes.str()),
      self.device().str());
}

// Throws if the memory of `view` overlaps itself or an argument.
void check_scattered_memory(const Tensor& view, std::span<const IndexedDims> indices,
                            const Operand& value) {
  detail::check_writable(kWrite, view);
  for (const IndexedDims& dims : indices) {
    if (dims.index.defined()) detail::check_no_overlap(kWrite, view, dims.index);
  }
  if (value.is_tensor()) detail::check_no_overlap(kWrite, view, value.tensor());
}

// True if `value`, broadcast to the plan's shape, is copied to flatten its index dims.
bool copies_value(const GatherPlan& plan, const Operand& value) {
  if (is_number(value)) return false;
  const Tensor source = without_leading_ones(value.tensor(), plan.sizes.size()).expand(plan.sizes);
  Shape flat = plan.sizes;
  for (int d = 1; d < plan.index_sizes.size(); ++d) flat.erase(plan.index_dim);
  flat[plan.index_dim] = plan.index_sizes.product();
  return !detail::view_strides(source.sizes(), source.strides(), flat).has_value();
}

}  // namespace

Tensor IndexPlan::viewed(const ViewPlan& view) const {
  return self_.restride(view.sizes, view.strides, view.offset);
}

IndexPlan IndexPlan::for_read(const Tensor& self, std::span<const Index> indices) {
  detail::check_defined("index", "self", self);
  detail::ParsedIndices parsed =
      detail::parse_indices("index", layout_of(self), indices, self.device());
  if (parsed.indexed.empty()) return {self, parsed.view};
  IndexPlan result(self, detail::plan_gather("index", std::move(parsed), self.device()));
  auto& plan = std::get<GatherPlan>(result.kind_);
  const auto element_bytes = static_cast<std::int64_t>(self.element_size());
  result.temporary_ = detail::temporary_bytes(plan);
  result.moved_ =
      2 * plan.sizes.product() * element_bytes + index_bytes(plan) + 2 * result.temporary_;
  detail::move_indices(plan, self.device());
  return result;
}

IndexPlan IndexPlan::for_write(const Tensor& self, std::span<const Index> indices,
                               const Operand& value, bool accumulate) {
  detail::check_defined(kWrite, "self", self);
  return plan_write(self, layout_of(self), indices, value, accumulate, false);
}

// With `is_copy` the layout is that of a copy of self, whose memory overlaps nothing.
IndexPlan IndexPlan::plan_write(const Tensor& self, const ViewPlan& layout,
                                std::span<const Index> indices, const Operand& value,
                                bool accumulate, bool is_copy) {
  detail::check_defined(kWrite, "value", value);
  if (value.is_tensor()) {
    detail::common_device(kWrite,
                          {{"self", self, detail::Role::in_place}, {"value", value.tensor()}},
                          detail::CpuScalars::allowed);
  }
  detail::ParsedIndices parsed = detail::parse_indices(kWrite, layout, indices, self.device());
  const auto element_bytes = static_cast<std::int64_t>(self.element_size());
  const std::int64_t value_bytes = value.is_tensor() ? bytes_of(value.tensor()) : 0;
  const std::int64_t view_bytes = parsed.view.sizes.product() * element_bytes;
  if (parsed.indexed.empty()) {
    IndexPlan result(self, is_number(value) ? Kind(FillPlan{parsed.view, accumulate, {}})
                                            : Kind(CopyPlan{parsed.view, accumulate}));
    result.moved_ = value_bytes + view_bytes * (accumulate ? 2 : 1);
    return result;
  }
  check_scattered_dtype(self, value);
  if (!is_copy) {
    const ViewPlan& view = parsed.view;
    check_scattered_memory(self.restride(view.sizes, view.strides, view.offset), parsed.indexed,
                           value);
  }
  if (fills_mask(parsed, value, accumulate)) {
    const bool is_moved = parsed.indexed.front().index.device() != self.device();
    FillPlan plan{parsed.view, false, mask_over(parsed, self.device())};
    IndexPlan result(self, plan);
    result.temporary_ = is_moved ? bytes_of(plan.mask) : 0;
    result.moved_ = value_bytes + 2 * view_bytes + bytes_of(plan.mask) + 2 * result.temporary_;
    return result;
  }
  GatherPlan places = detail::plan_gather(kWrite, std::move(parsed), self.device());
  check_scattered_shape(self, places.sizes, value);
  const std::int64_t written = places.sizes.product() * element_bytes;
  const std::int64_t temporary = detail::temporary_bytes(places) +
                                 (value.is_tensor() ? 0 : element_bytes) +
                                 (copies_value(places, value) ? written : 0);
  const std::int64_t moved =
      value_bytes + written * (accumulate ? 2 : 1) + index_bytes(places) + 2 * temporary;
  detail::move_indices(places, self.device());
  IndexPlan result(self, ScatterPlan{std::move(places), accumulate});
  result.temporary_ = temporary;
  result.moved_ = moved;
  return result;
}

// index_put: the plan is that of the copy, which is made when everything is checked.
struct CopyWriter {
  static Tensor run(const Tensor& self, std::span<const Index> indices, const Operand& value,
                    bool accumulate) {
    detail::check_defined("index_put", "self", self);
    IndexPlan plan =
        IndexPlan::plan_write(self, {self.sizes(), detail::contiguous_strides(self.sizes()), 0},
                              indices, value, accumulate, true);
    plan.self_ = self.clone();
    plan.write(value);
    return plan.self_;
  }
};

Tensor index_put(const Tensor& self, std::span<const Index> indices, const Operand& value,
                 bool accumulate) {
  return CopyWriter::run(self, indices, value, accumulate);
}
Tensor index_put(const Tensor& self, std::initializer_list<Index> indices, const Operand& value,
                 bool accumulate) {
  return index_put(self, std::span(indices.begin(), indices.size()), value, accumulate);
}

Tensor IndexPlan::read() const {
  detail::check_whole("IndexPlan::read", self_, kind_);
  if (const auto* view = std::get_if<ViewPlan>(&kind_)) return viewed(*view);
  const auto* gather = std::get_if<GatherPlan>(&kind_);
  if (gather == nullptr) {
    throw InvalidArgument(
        fmt::format("IndexPlan::read: expected the plan of a read, but got that of a write, {}",
                    name()),
        self_.device().str());
  }
  Tensor result = detail::empty_as("index", gather->sizes, self_.options());
  detail::gather_indexed(result, viewed(gather->view), *gather);
  std::const_pointer_cast<Tensor::Impl>(result.impl_)->is_index_copy = true;
  return result;
}

void IndexPlan::write_view(const ViewPlan& view, const Operand& value, bool accumulate) const {
  Tensor place = viewed(view);
  if (is_number(value)) {
    if (accumulate) {
      add_number(place, value);
    } else {
      place.fill_as(kWrite, value);
    }
    return;
  }
  const Tensor source = without_leading_ones(value.tensor(), place.dim());
  if (accumulate) {
    detail::add_as(kWrite, place, place, source);
  } else {
    place.copy_as(kWrite, source);
  }
}

void IndexPlan::write(const Operand& value) const {
  detail::check_whole("IndexPlan::write", self_, kind_);
  if (std::holds_alternative<ViewPlan>(kind_) || std::holds_alternative<GatherPlan>(kind_)) {
    throw InvalidArgument(
        fmt::format("IndexPlan::write: expected the plan of a write, but got that of a read, {}",
                    name()),
        self_.device().str());
  }
  detail::check_defined(kWrite, "value", value);
  if (value.is_tensor()) {
    detail::common_device(kWrite,
                          {{"self", self_, detail::Role::in_place}, {"value", value.tensor()}},
                          detail::CpuScalars::allowed);
  }
  if (const auto* copy = std::get_if<CopyPlan>(&kind_)) {
    write_view(copy->view, value, copy->accumulate);
    return;
  }
  if (const auto* fill = std::get_if<FillPlan>(&kind_)) {
    if (fill->mask.defined()) {
      write_masked(*fill, value);
    } else {
      write_view(fill->view, value, fill->accumulate);
    }
    return;
  }
  const auto& plan = std::get<ScatterPlan>(kind_);
  const Tensor view = viewed(plan.places.view);
  check_scattered_dtype(self_, value);
  check_scattered_shape(self_, plan.places.sizes, value);
  check_scattered_memory(view, plan.places.indices, value);
  const bool from_host = value.is_tensor() && value.tensor().is_cpu() && self_.is_cuda();
  const Tensor source =
      value.is_tensor() && !from_host
          ? without_leading_ones(value.tensor(), plan.places.sizes.size())
          : self_.new_full({}, from_host ? value.tensor().item() : value.number());
  detail::scatter_indexed(view, plan, source.expand(plan.places.sizes));
}

void IndexPlan::write_masked(const FillPlan& plan, const Operand& value) const {
  check_scattered_dtype(self_, value);
  if (!is_number(value)) {
    throw ShapeError(
        fmt::format("{}: expected a number or a 0-dim tensor for a plan that fills a mask, but got "
                    "shape {}",
                    kWrite, value.tensor().sizes().str()),
        self_.device().str());
  }
  Tensor place = viewed(plan.view);
  detail::where_as(kWrite, &place, plan.mask, value, place, self_.dtype());
}

Tensor Tensor::index(std::span<const Index> indices) const {
  return IndexPlan::for_read(*this, indices).read();
}

Tensor Tensor::index(std::initializer_list<Index> indices) const {
  return index(std::span<const Index>(indices.begin(), indices.size()));
}

Tensor& Tensor::index_put_(std::span<const Index> indices, const Operand& value,
                           bool accumulate) const {
  IndexPlan::for_write(*this, indices, value, accumulate).write(value);
  return handle();
}

Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Operand& value,
                           bool accumulate) const {
  return index_put_(std::span<const Index>(indices.begin(), indices.size()), value, accumulate);
}

const Tensor& Tensor::assigned() const {
  // A handle beside the rvalue sees the elements.
  if (impl_ != nullptr && impl_->is_index_copy && impl_.use_count() == 1) {
    throw InvalidArgument(
        "operator=: expected a view, but got a copy, because an index is a tensor; write with "
        "index_put_",
        device().str());
  }
  return *this;
}

}  // namespace gantry
