// Elements that are not zero, and elements that a mask selects. Note [Compaction].
#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "kernels/compaction.hpp"
#include "tensor/broadcast.hpp"
#include "tensor/check.hpp"
#include "tensor/in_place_indexing.hpp"
#include "tensor/index_checks.hpp"
#include "tensor/mask_count.hpp"
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

Tensor run_nonzero(const char* op, const Tensor& self) {
  detail::check_defined(op, "self", self);
  const detail::MaskCount count = detail::count_mask(self);
  // The columns are contiguous: neighbouring threads write neighbouring elements.
  const Tensor columns =
      empty({self.dim(), count.found}, {.dtype = DType::i64, .device = self.device()});
  const Tensor result = columns.t();
  kernels::write_coordinates(detail::target_of(self), result.ref(), self.ref(),
                             count.tile_sums.ref(), count.found);
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
    detail::common_device(kOp, {{"out", *out, true}, {"self", self}, {"mask", mask}});
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
                       selecting.ref(), count.tile_sums.ref(), count.found);
  return result;
}

}  // namespace

Tensor nonzero(const Tensor& self) { return run_nonzero("nonzero", self); }
Tensor argwhere(const Tensor& self) { return run_nonzero("argwhere", self); }
std::vector<Tensor> nonzero_numpy(const Tensor& self) {
  return run_columns("nonzero_numpy", self);
}
std::vector<Tensor> where(const Tensor& condition) { return run_columns("where", condition); }

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  return run_masked_select(nullptr, self, mask);
}
Tensor& masked_select_out(Tensor& out, const Tensor& self, const Tensor& mask) {
  run_masked_select(&out, self, mask);
  return out;
}

void detail::masked_scatter_(const Tensor& self, const Tensor& mask, const Tensor& source) {
  constexpr const char* kOp = "masked_scatter_";
  common_device(kOp, {{"self", self, true}, {"mask", mask}, {"source", source}});
  check_mask("masked_scatter_: only supports boolean masks", mask);
  check_source_dtype(kOp, self, source);
  const Shape sizes = expanded_sizes(kOp, mask.sizes(), self.sizes(), self.device());
  check_writable(kOp, self);
  check_no_overlap(kOp, self, mask);
  check_no_overlap(kOp, self, source);
  const Tensor selecting = mask.expand(sizes);
  const MaskCount count = count_mask(selecting);
  if (source.numel() < count.found) {
    throw ShapeError(
        fmt::format("masked_scatter_: Number of elements of source < number of ones in mask: {} < "
                    "{}",
                    source.numel(), count.found),
        self.device().str());
  }
  kernels::unpack_masked(kOp, target_of(self), self.ref(), source.reshape({-1}).ref(),
                         selecting.ref(), count.tile_sums.ref(), count.found);
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  detail::common_device("masked_scatter", {{"self", self}, {"mask", mask}, {"source", source}});
  const Shape shape =
      detail::common_shape("masked_scatter", {&self.sizes(), &mask.sizes()}, self.device());
  Tensor result = self.expand(shape).clone();
  detail::masked_scatter_(result, mask, source);
  return result;
}

}  // namespace gantry
