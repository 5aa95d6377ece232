// Elements that are not zero, and elements that a mask selects. Note [Compaction].
#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "kernels/indexing/compaction.hpp"
#include "tensor/check.hpp"
#include "tensor/indexing/in_place_indexing.hpp"
#include "tensor/indexing/index_checks.hpp"
#include "tensor/indexing/mask_count.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

void check_mask(std::string_view text, const Tensor& mask) {
  if (mask.dtype() == DType::bool_) return;
  throw DTypeError(fmt::format("{}, but got {}", text, torch_name(mask.dtype())),
                   mask.device().str());
}

Tensor run_nonzero(const char* op, const Tensor& self, const Tensor* out = nullptr) {
  detail::check_defined(op, "self", self);
  if (out != nullptr) {
    detail::common_device(op, {{"out", *out, detail::Role::output}, {"self", self}});
  }
  const detail::MaskCount count = detail::count_mask(self);
  if (out != nullptr) {
    detail::check_index_out(op, *out, DType::i64, {count.found, self.dim()}, {&self});
    kernels::write_coordinates(detail::target_of(*out), out->ref(), self.ref(),
                               count.selection.ref(), count.found);
    return *out;
  }
  // The columns are contiguous: neighbouring threads write neighbouring elements.
  const Tensor columns =
      empty({self.dim(), count.found}, {.dtype = DType::i64, .device = self.device()});
  const Tensor result = columns.t();
  kernels::write_coordinates(detail::target_of(self), result.ref(), self.ref(),
                             count.selection.ref(), count.found);
  return result;
}

std::vector<Tensor> run_columns(const char* op, const Tensor& self) {
  detail::check_defined(op, "self", self);
  return run_nonzero(op, detail::at_least_1d(self)).unbind(1);
}

Tensor run_masked_select(const Tensor* out, const Tensor& self, const Tensor& mask) {
  constexpr const char* kOp = "masked_select";
  if (out == nullptr) {
    detail::common_device(kOp, {{"self", self}, {"mask", mask}});
  } else {
    detail::common_device(kOp,
                          {{"out", *out, detail::Role::output}, {"self", self}, {"mask", mask}});
  }
  check_mask("masked_select: expected BoolTensor for mask", mask);
  const Shape shape = detail::common_shape(kOp, {&self.sizes(), &mask.sizes()}, self.device());
  const Tensor selecting = mask.expand(shape);
  const detail::MaskCount count = detail::count_mask(selecting);
  if (out != nullptr) {
    detail::check_index_out(kOp, *out, self.dtype(), {count.found}, {&self, &mask});
  }
  const Tensor result = out != nullptr ? *out : empty({count.found}, self.options());
  kernels::pack_masked(kOp, detail::target_of(self), result.ref(), self.expand(shape).ref(),
                       selecting.ref(), count.selection.ref(), count.found);
  return result;
}

}  // namespace

Tensor nonzero(const Tensor& self) { return run_nonzero("nonzero", self); }
Tensor& nonzero_out(Tensor& out, const Tensor& self) {
  run_nonzero("nonzero", self, &out);
  return out;
}
Tensor argwhere(const Tensor& self) { return run_nonzero("argwhere", self); }
std::vector<Tensor> nonzero_numpy(const Tensor& self) { return run_columns("nonzero_numpy", self); }
std::vector<Tensor> where(const Tensor& condition) { return run_columns("where", condition); }

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  return run_masked_select(nullptr, self, mask);
}
Tensor& masked_select_out(Tensor& out, const Tensor& self, const Tensor& mask) {
  run_masked_select(&out, self, mask);
  return out;
}

namespace {

// Checks all arguments of a masked_scatter to a tensor of shape `sizes`, and counts.
detail::MaskCount check_masked_scatter(const char* op, const Tensor& self, const Shape& sizes,
                                       const Tensor& mask, const Tensor& source) {
  check_mask(fmt::format("{}: only supports boolean masks", op), mask);
  detail::check_source_dtype(op, self, source);
  (void)detail::expanded_sizes(op, mask.sizes(), sizes, self.device());
  const detail::MaskCount count = detail::count_mask(mask.expand(sizes));
  if (source.numel() < count.found) {
    throw ShapeError(
        fmt::format("{}: Number of elements of source < number of ones in mask: {} < {}", op,
                    source.numel(), count.found),
        self.device().str());
  }
  return count;
}

void run_masked_scatter(const char* op, const Tensor& self, const Tensor& mask,
                        const Tensor& source, const detail::MaskCount& count) {
  kernels::unpack_masked(op, detail::target_of(self), self.ref(), source.reshape({-1}).ref(),
                         mask.expand(self.sizes()).ref(), count.selection.ref(), count.found);
}

}  // namespace

void detail::masked_scatter_(const Tensor& self, const Tensor& mask, const Tensor& source) {
  constexpr const char* kOp = "masked_scatter_";
  common_device(kOp, {{"self", self, detail::Role::in_place}, {"mask", mask}, {"source", source}});
  check_writable(kOp, self);
  check_no_overlap(kOp, self, mask);
  check_no_overlap(kOp, self, source);
  const MaskCount count = check_masked_scatter(kOp, self, self.sizes(), mask, source);
  run_masked_scatter(kOp, self, mask, source, count);
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  constexpr const char* kOp = "masked_scatter";
  detail::common_device(kOp, {{"self", self}, {"mask", mask}, {"source", source}});
  const Shape sizes = detail::common_shape(kOp, {&self.sizes(), &mask.sizes()}, self.device());
  const detail::MaskCount count = check_masked_scatter(kOp, self, sizes, mask, source);
  Tensor result = self.expand(sizes).clone();
  run_masked_scatter(kOp, result, mask, source, count);
  return result;
}

}  // namespace gantry
