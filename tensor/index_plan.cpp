#include "tensor/index_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tensor/check.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/same_device.hpp"

namespace gantry {

Index::Index(const char* text) : value_(EllipsisType{}) {
  if (text == nullptr || std::string_view(text) != "...") {
    throw InvalidArgument(
        fmt::format("Index: expected \"...\", but got \"{}\"", text == nullptr ? "(null)" : text));
  }
}

namespace {

struct IndexText {
  std::string operator()(std::int64_t position) const { return std::to_string(position); }
  std::string operator()(const Slice& slice) const {
    const auto bound = [](const std::optional<std::int64_t>& value) {
      return value ? std::to_string(*value) : std::string();
    };
    const std::string range = bound(slice.start) + ":" + bound(slice.stop);
    return slice.step == 1 ? range : range + ":" + std::to_string(slice.step);
  }
  std::string operator()(std::nullopt_t) const { return "None"; }
  std::string operator()(EllipsisType) const { return "..."; }
  std::string operator()(bool flag) const { return flag ? "True" : "False"; }
};

}  // namespace

std::string Index::str() const { return std::visit(IndexText{}, value_); }

namespace detail {

namespace {

// Visitor of index entries: walks over the source dims and appends to the plan.
class Planner {
 public:
  Planner(std::string_view op, const ViewPlan& layout, Device device, int ellipsis_dims)
      : op_(op), layout_(layout), device_(device), ellipsis_dims_(ellipsis_dims) {
    plan_.offset = layout.offset;
  }

  void operator()(std::int64_t position) {
    const std::int64_t size = layout_.sizes[dim_];
    if (position < -size || position >= size) {
      throw IndexError(fmt::format("{}: index {} is out of bounds for dimension {} with size {}",
                                   op_, position, dim_, size),
                       device_.str());
    }
    plan_.offset += (position < 0 ? position + size : position) * layout_.strides[dim_];
    ++dim_;
  }

  void operator()(const Slice& slice) {
    if (slice.step == 0)
      throw IndexError(fmt::format("{}: slice step cannot be zero", op_), device_.str());
    if (slice.step < 0) {
      throw IndexError(
          fmt::format("{}: step must be greater than zero, but got {}", op_, slice.step),
          device_.str());
    }
    const std::int64_t size = layout_.sizes[dim_];
    const std::int64_t stride = layout_.strides[dim_];
    const auto clamped = [size](std::int64_t bound) {
      return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, 0, size);
    };
    const std::int64_t first = clamped(slice.start.value_or(0));
    const std::int64_t length =
        std::max<std::int64_t>(clamped(slice.stop.value_or(size)) - first, 0);
    const std::int64_t count = length / slice.step + (length % slice.step != 0 ? 1 : 0);
    plan_.offset += first * stride;
    // A dim of at most one element does not use its stride, and the product might overflow.
    append(count, count <= 1 ? stride : stride * slice.step);
    ++dim_;
  }

  void operator()(std::nullopt_t) { append(1, 0); }

  void operator()(EllipsisType) { keep(ellipsis_dims_); }

  // Bools are 0-dim masks. Together they make one dim. It is in place of the bools if they are
  // adjacent in the result, else first.
  void operator()(bool flag) {
    const int here = plan_.sizes.size();
    if (!flag_dim_) {
      flag_dim_ = here;
      append(flag ? 1 : 0, 0);
      return;
    }
    flags_apart_ = flags_apart_ || here != *flag_dim_ + 1;
    if (!flag) plan_.sizes[*flag_dim_] = 0;
  }

  ViewPlan finish() {
    keep(layout_.sizes.size() - dim_);
    if (flags_apart_) {
      const std::int64_t size = plan_.sizes[*flag_dim_];
      plan_.sizes.erase(*flag_dim_);
      plan_.strides.erase(*flag_dim_);
      plan_.sizes.insert(0, size);
      plan_.strides.insert(0, 0);
    }
    return plan_;
  }

 private:
  void append(std::int64_t size, std::int64_t stride) {
    plan_.sizes.push_back(size);
    plan_.strides.push_back(stride);
  }

  void keep(int count) {
    for (int i = 0; i < count; ++i, ++dim_) append(layout_.sizes[dim_], layout_.strides[dim_]);
  }

  std::string_view op_;
  const ViewPlan& layout_;
  Device device_;
  int ellipsis_dims_;
  int dim_ = 0;
  ViewPlan plan_;
  std::optional<int> flag_dim_;  // the dim of the bools
  bool flags_apart_ = false;
};

}  // namespace

ViewPlan plan_index(std::string_view op, const ViewPlan& layout, std::span<const Index> indices,
                    Device device) {
  const int ndim = layout.sizes.size();
  int consumed = 0;
  int ellipses = 0;
  for (const Index& index : indices) {
    const bool number = std::holds_alternative<std::int64_t>(index.value());
    if (number && ndim == 0) {
      throw IndexError(fmt::format("{}: invalid index of a 0-dim tensor. Use `tensor.item<T>()` to "
                                   "convert a 0-dim tensor "
                                   "to a number",
                                   op),
                       device.str());
    }
    if (number || std::holds_alternative<Slice>(index.value())) ++consumed;
    if (std::holds_alternative<EllipsisType>(index.value())) ++ellipses;
  }
  if (ellipses > 1) {
    throw IndexError(fmt::format("{}: an index can only have a single ellipsis ('...')", op),
                     device.str());
  }
  if (consumed > ndim) {
    throw IndexError(fmt::format("{}: too many indices for tensor of dimension {}", op, ndim),
                     device.str());
  }
  Planner planner(op, layout, device, ndim - consumed);
  for (const Index& index : indices) std::visit(planner, index.value());
  return planner.finish();
}

}  // namespace detail

Tensor Tensor::index(std::span<const Index> indices) const {
  detail::check_defined("index", "self", *this);
  const detail::ViewPlan plan =
      detail::plan_index("index", {sizes(), strides(), storage_offset()}, indices, device());
  return restride(plan.sizes, plan.strides, plan.offset);
}

Tensor Tensor::index(std::initializer_list<Index> indices) const {
  return index(std::span<const Index>(indices.begin(), indices.size()));
}

namespace {

// `value` without surplus leading dims of size 1, which an assignment ignores as in PyTorch.
Tensor without_leading_ones(Tensor value, int dims) {
  while (value.dim() > dims && value.size(0) == 1) value = value.select(0, 0);
  return value;
}

}  // namespace

Tensor& Tensor::index_put_(std::span<const Index> indices, const Operand& value,
                           bool accumulate) const {
  detail::check_defined("index_put_", "self", *this);
  detail::check_defined("index_put_", "value", value);
  if (value.is_tensor()) {
    detail::common_device("index_put_", {{"self", *this, true}, {"value", value.tensor()}},
                          detail::CpuScalars::allowed);
  }
  const detail::ViewPlan plan =
      detail::plan_index("index_put_", {sizes(), strides(), storage_offset()}, indices, device());
  Tensor place = restride(plan.sizes, plan.strides, plan.offset);
  // A number from the CPU becomes a kernel argument: no host-device copy, which would block the
  // host.
  const bool is_number =
      !value.is_tensor() || (value.tensor().dim() == 0 && value.tensor().is_cpu() && is_cuda());
  if (is_number && !accumulate) {
    place.fill_as("index_put_", value);
  } else if (is_number) {
    detail::add_as("index_put_", place, place, value);
  } else {
    const Tensor source = without_leading_ones(value.tensor(), place.dim());
    if (accumulate) {
      detail::add_as("index_put_", place, place, source);
    } else {
      place.copy_as("index_put_", source);
    }
  }
  return handle();
}

Tensor& Tensor::index_put_(std::initializer_list<Index> indices, const Operand& value,
                           bool accumulate) const {
  return index_put_(std::span<const Index>(indices.begin(), indices.size()), value, accumulate);
}

}  // namespace gantry
