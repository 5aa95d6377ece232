#include "tensor/indexing/index_checks.hpp"

#include <fmt/format.h>

#include <initializer_list>

#include <gantry/core/error.hpp>

#include "tensor/check.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/overlap.hpp"

namespace gantry::detail {

void check_index_dtype(std::string_view op, const Tensor& index) {
  if (index.dtype() == DType::i32 || index.dtype() == DType::i64) return;
  throw DTypeError(fmt::format("{}(): Expected dtype int32 or int64 for index, but got {}", op,
                               torch_name(index.dtype())),
                   index.device().str());
}

void check_source_dtype(std::string_view op, const Tensor& self, const Tensor& source) {
  if (source.dtype() == self.dtype()) return;
  throw DTypeError(
      fmt::format("{}(): Expected self.dtype to be equal to src.dtype, but got {} and {}", op,
                  torch_name(self.dtype()), torch_name(source.dtype())),
      self.device().str());
}

void check_index_dims(std::string_view op, const Tensor& tensor, const Tensor& index,
                      std::string_view name) {
  if (index.dim() == tensor.dim()) return;
  throw ShapeError(
      fmt::format("{}(): Index tensor must have the same number of dimensions as {} tensor, but "
                  "got {} and {}",
                  op, name, index.dim(), tensor.dim()),
      tensor.device().str());
}

void check_index_out(std::string_view op, const Tensor& out, DType dtype, const Shape& sizes,
                     std::initializer_list<const Tensor*> inputs) {
  if (out.dtype() != dtype) {
    throw DTypeError(fmt::format("{}: Expected out tensor to have dtype {}, but got {} instead", op,
                                 torch_name(dtype), torch_name(out.dtype())),
                     out.device().str());
  }
  check_out_shape(op, out, sizes);
  check_writable(op, out);
  for (const Tensor* input : inputs) check_no_overlap(op, out, *input);
}

Tensor at_least_1d(const Tensor& tensor) { return tensor.dim() == 0 ? tensor.view({1}) : tensor; }

bool fits_index(const Tensor& index, const Tensor& tensor, int dim) {
  for (int d = 0; d < index.dim(); ++d) {
    if (d != dim && index.size(d) > tensor.size(d)) return false;
  }
  return true;
}

void check_whole(const char* op, const Tensor& self, const IndexPlan::Kind& kind) {
  check_defined(op, "self", self);
  const auto* scatter = std::get_if<ScatterPlan>(&kind);
  const auto* gather = scatter != nullptr ? &scatter->places : std::get_if<GatherPlan>(&kind);
  if (gather == nullptr || !gather->indices.empty()) return;
  throw InvalidArgument(fmt::format("{}: expected a plan, but got one that was moved from", op),
                        self.device().str());
}

}  // namespace gantry::detail
