#include "tensor/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

namespace gantry::detail {

bool has_internal_overlap(const Tensor& tensor) {
  if (tensor.is_contiguous()) return false;
  std::vector<int> order;
  for (int d = 0; d < tensor.dim(); ++d) {
    if (tensor.sizes()[d] != 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return tensor.strides()[a] < tensor.strides()[b]; });
  // The stride of each dim must exceed the span of all dims with smaller strides.
  std::int64_t span = 0;
  for (const int d : order) {
    if (tensor.strides()[d] <= span) return true;
    span += (tensor.sizes()[d] - 1) * tensor.strides()[d];
  }
  return false;
}

namespace {

// One dim of two layouts: the stride in bytes and each layout's size.
struct SharedDim {
  std::int64_t stride;
  std::int64_t size_a;
  std::int64_t size_b;
};

std::vector<SharedDim> shared_dims(const Tensor& a, const Tensor& b) {
  std::vector<SharedDim> dims;
  const auto bytes = [](const Tensor& tensor, int d) {
    return tensor.strides()[d] * static_cast<std::int64_t>(tensor.element_size());
  };
  for (int d = 0; d < a.dim(); ++d) {
    if (a.sizes()[d] > 1) dims.push_back({bytes(a, d), a.sizes()[d], 1});
  }
  for (int d = 0; d < b.dim(); ++d) {
    if (b.sizes()[d] <= 1) continue;
    const auto match = std::find_if(dims.begin(), dims.end(), [&](const SharedDim& dim) {
      return dim.stride == bytes(b, d) && dim.size_b == 1;
    });
    if (match != dims.end()) {
      match->size_b = b.sizes()[d];
    } else {
      dims.push_back({bytes(b, d), 1, b.sizes()[d]});
    }
  }
  std::sort(dims.begin(), dims.end(),
            [](const SharedDim& x, const SharedDim& y) { return x.stride > y.stride; });
  return dims;
}

// False if the layouts certainly share no element; else true. b begins `distance` >= 0 bytes after
// a.
//
// Element i of a and element j of b share memory if sum((i_d - j_d) * stride_d) == distance. The
// search starts at the largest stride. The span of the smaller strides bounds i_d - j_d. If several
// values are possible, the answer is true.
bool may_meet(const std::vector<SharedDim>& dims, std::int64_t distance) {
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t stride = dims[d].stride;
    if (stride == 0) continue;
    std::int64_t above = 0;
    std::int64_t below = 0;
    for (std::size_t e = d + 1; e < dims.size(); ++e) {
      above += (dims[e].size_a - 1) * dims[e].stride;
      below += (dims[e].size_b - 1) * dims[e].stride;
    }
    const std::int64_t steps = distance / stride;
    const std::int64_t rest = distance % stride;
    if (below >= stride - rest || above >= stride + rest) return true;
    if (steps >= dims[d].size_a) return false;
    distance = rest;
  }
  return distance == 0;
}

}  // namespace

Overlap overlap_of(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0 || a.device() != b.device()) return Overlap::none;
  const auto range = [](const Tensor& tensor) {
    std::int64_t last = 0;
    if (tensor.is_contiguous()) {
      last = tensor.numel() - 1;
    } else {
      for (int d = 0; d < tensor.dim(); ++d) {
        last += (tensor.sizes()[d] - 1) * tensor.strides()[d];
      }
    }
    const char* first = static_cast<const char*>(tensor.data());
    return std::pair(first, first + (last + 1) * static_cast<std::int64_t>(tensor.element_size()));
  };
  const auto [begin_a, end_a] = range(a);
  const auto [begin_b, end_b] = range(b);
  if (end_a <= begin_b || end_b <= begin_a) return Overlap::none;
  if (a.dtype() != b.dtype()) return Overlap::partial;
  if (begin_a == begin_b && a.sizes() == b.sizes() &&
      ((a.is_contiguous() && b.is_contiguous()) || a.strides() == b.strides())) {
    return Overlap::full;
  }
  const bool meet = begin_a <= begin_b ? may_meet(shared_dims(a, b), begin_b - begin_a)
                                       : may_meet(shared_dims(b, a), begin_a - begin_b);
  return meet ? Overlap::partial : Overlap::none;
}

void check_writable(std::string_view op, const Tensor& out) {
  if (!has_internal_overlap(out)) return;
  throw InvalidArgument(
      fmt::format(
          "{}: unsupported operation: more than one element of the written-to tensor refers to a "
          "single memory location. Please clone() the tensor before performing the operation.",
          op),
      out.device().str());
}

namespace {

[[noreturn]] void throw_overlap(std::string_view op, const Tensor& out) {
  throw InvalidArgument(
      fmt::format(
          "{}: unsupported operation: some elements of the input tensor and the written-to tensor "
          "refer to a single memory location. Please clone() the tensor before performing the "
          "operation.",
          op),
      out.device().str());
}

}  // namespace

void check_no_partial_overlap(std::string_view op, const Tensor& out, const Tensor& in) {
  if (overlap_of(out, in) == Overlap::partial) throw_overlap(op, out);
}

void check_no_overlap(std::string_view op, const Tensor& out, const Tensor& in) {
  if (overlap_of(out, in) != Overlap::none) throw_overlap(op, out);
}

}  // namespace gantry::detail
