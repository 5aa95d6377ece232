#include "tensor/indexing/index_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tensor/check.hpp"
#include "tensor/peer_operands.hpp"

namespace gantry {

Index::Index(const char* text) : value_(EllipsisType{}) {
  if (text == nullptr || std::string_view(text) != "...") {
    throw InvalidArgument(
        fmt::format("Index: expected \"...\", but got \"{}\"", text == nullptr ? "(null)" : text));
  }
}

Index::Index(const Tensor& tensor) : value_(std::make_shared<const Tensor>(tensor)) {}

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
  std::string operator()(const std::shared_ptr<const Tensor>& tensor) const {
    if (tensor == nullptr || !tensor->defined()) return "undefined";
    return fmt::format("{} {}", name(tensor->dtype()), tensor->sizes().str());
  }
};

}  // namespace

std::string Index::str() const { return std::visit(IndexText{}, value_); }

namespace detail {

namespace {

// Visitor of index entries: walks over the source dims and appends to the plan.
class Planner {
 public:
  Planner(std::string_view op, const ViewPlan& layout, Device device, int ellipsis_dims,
          bool has_tensors)
      : op_(op),
        layout_(layout),
        device_(device),
        ellipsis_dims_(ellipsis_dims),
        has_tensors_(has_tensors) {
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
    if (has_tensors_) {
      IndexedDims dims;
      dims.dim = here;
      dims.count = 0;
      dims.found = flag ? 1 : 0;
      indexed_.push_back(dims);
      return;
    }
    if (!flag_dim_) {
      flag_dim_ = here;
      append(flag ? 1 : 0, 0);
      return;
    }
    flags_apart_ = flags_apart_ || here != *flag_dim_ + 1;
    if (!flag) plan_.sizes[*flag_dim_] = 0;
  }

  void operator()(const std::shared_ptr<const Tensor>& tensor) {
    const Tensor& index = *tensor;
    if (index.dim() == 0) {
      if (is_mask(index)) {
        (*this)(index.item<bool>());
      } else {
        (*this)(index.item<std::int64_t>());
      }
      return;
    }
    IndexedDims dims;
    dims.index = index;
    dims.dim = plan_.sizes.size();
    dims.count = is_mask(index) ? index.dim() : 1;
    dims.source_dim = dim_;
    dims.is_mask = is_mask(index);
    indexed_.push_back(dims);
    keep(dims.count);
  }

  static bool is_mask(const Tensor& index) {
    return index.dtype() == DType::bool_ || index.dtype() == DType::u8;
  }

  ParsedIndices finish() {
    keep(layout_.sizes.size() - dim_);
    for (const IndexedDims& dims : indexed_) {
      if (dims.is_mask) check_mask(dims);
    }
    if (flags_apart_) {
      const std::int64_t size = plan_.sizes[*flag_dim_];
      plan_.sizes.erase(*flag_dim_);
      plan_.strides.erase(*flag_dim_);
      plan_.sizes.insert(0, size);
      plan_.strides.insert(0, 0);
    }
    return {plan_, std::move(indexed_)};
  }

 private:
  void check_mask(const IndexedDims& dims) const {
    for (int d = 0; d < dims.count; ++d) {
      if (dims.index.size(d) == plan_.sizes[dims.dim + d]) continue;
      throw IndexError(
          fmt::format("{}: The shape of the mask {} at index {} does not match the shape of the "
                      "indexed tensor {} at index {}",
                      op_, dims.index.sizes().str(), d, plan_.sizes.str(), dims.dim + d),
          device_.str());
    }
  }

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
  bool has_tensors_;
  int dim_ = 0;
  ViewPlan plan_;
  std::vector<IndexedDims> indexed_;
  std::optional<int> flag_dim_;  // the dim of the bools
  bool flags_apart_ = false;
};

// Throws unless the tensor may stand in an index list for a tensor on `device`.
void check_index_tensor(std::string_view op, const Tensor& index, Device device) {
  check_defined(op, "index", index);
  const DType dtype = index.dtype();
  const bool is_number = index.dim() == 0 && (dtype == DType::i16 || dtype == DType::i8);
  if (dtype != DType::i64 && dtype != DType::i32 && !is_number && !Planner::is_mask(index)) {
    throw IndexError(
        fmt::format("{}: tensors used as indices must be long, int, byte or bool tensors, but got "
                    "{}",
                    op, torch_name(dtype)),
        device.str());
  }
  if (index.is_cpu() || index.device() == device || adopt_peer_operand(device, index)) return;
  throw DeviceMismatchError(
      fmt::format("{}: indices should be either on cpu or on the same device as the indexed tensor "
                  "({}), but got {}",
                  op, device.str(), index.device().str()),
      device.str());
}

}  // namespace

ParsedIndices parse_indices(std::string_view op, const ViewPlan& layout,
                            std::span<const Index> indices, Device device) {
  const int ndim = layout.sizes.size();
  int consumed = 0;
  int ellipses = 0;
  bool has_tensors = false;
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
    if (const auto* held = std::get_if<std::shared_ptr<const Tensor>>(&index.value())) {
      const Tensor tensor = *held != nullptr ? **held : Tensor();  // null in a moved-from Index
      check_index_tensor(op, tensor, device);
      consumed += Planner::is_mask(tensor) ? tensor.dim() : 1;
      has_tensors = has_tensors || tensor.dim() > 0;
    }
  }
  if (ellipses > 1) {
    throw IndexError(fmt::format("{}: an index can only have a single ellipsis ('...')", op),
                     device.str());
  }
  if (consumed > ndim) {
    throw IndexError(fmt::format("{}: too many indices for tensor of dimension {}", op, ndim),
                     device.str());
  }
  Planner planner(op, layout, device, ndim - consumed, has_tensors);
  for (const Index& index : indices) std::visit(std::ref(planner), index.value());
  return planner.finish();
}

}  // namespace detail

}  // namespace gantry
