// Operations along one dim that keep its size: running sums and products, softmax.
#include <gantry/tensor/reductions.hpp>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/reductions/reduce.hpp"
#include "tensor/check.hpp"
#include "tensor/destination.hpp"
#include "tensor/reductions/reduction_rules.hpp"
#include "tensor/target_of.hpp"

namespace gantry {
namespace {

Tensor run_scan(std::string_view name, kernels::ScanOp op, const Tensor& self, int dim,
                std::optional<DType> dtype, Tensor* given = nullptr) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  const int axis = detail::wrap_dim(name, dim, self);
  const DType wanted = dtype.value_or(detail::summed(self.dtype()));
  detail::check_computes(name, dtype.value_or(self.dtype()));
  const Tensor converted = dtype ? self.to(*dtype) : self;
  const Tensor source = self.dim() == 0 ? converted.view({1}) : converted;
  const DType summing = detail::summed(source.dtype());
  // Sums of narrow integers are i64 first.
  detail::Destination destination(name, wanted == summing ? given : nullptr, self.sizes(), summing,
                                  {&source});
  kernels::scan(detail::target_of(self), op, destination.tensor().view(source.sizes()).ref(),
                source.ref(), axis);
  const Tensor result = destination.finish().to(wanted);
  return given != nullptr && wanted != summing ? detail::copy_result(name, *given, result) : result;
}

Tensor run_softmax(std::string_view name, bool logarithm, const Tensor& self, int dim,
                   std::optional<DType> dtype, Tensor* out = nullptr) {
  const kernels::OpScope scope(name);
  detail::check_defined(name, "self", self);
  detail::check_floating(name, dtype.value_or(self.dtype()), self.device());
  const int axis = detail::wrap_dim(name, dim, self);
  const Tensor converted = dtype ? self.to(*dtype) : self;
  const Tensor source = self.dim() == 0 ? converted.view({1}) : converted;
  detail::Destination destination(name, out, self.sizes(), source.dtype(), {&source});
  kernels::softmax(detail::target_of(self), logarithm,
                   destination.tensor().view(source.sizes()).ref(), source.ref(), axis);
  return destination.finish();
}

}  // namespace

Tensor cumsum(const Tensor& self, Dim dim, std::optional<DType> dtype) {
  return run_scan("cumsum", kernels::ScanOp::sum, self, dim, dtype);
}

Tensor cumprod(const Tensor& self, Dim dim, std::optional<DType> dtype) {
  return run_scan("cumprod", kernels::ScanOp::product, self, dim, dtype);
}

Tensor softmax(const Tensor& self, Dim dim, std::optional<DType> dtype) {
  return run_softmax("softmax", false, self, dim, dtype);
}

Tensor log_softmax(const Tensor& self, Dim dim, std::optional<DType> dtype) {
  return run_softmax("log_softmax", true, self, dim, dtype);
}

Tensor& cumsum_out(Tensor& out, const Tensor& self, Dim dim, std::optional<DType> dtype) {
  run_scan("cumsum", kernels::ScanOp::sum, self, dim, detail::dtype_for("cumsum", out, self, dtype),
           &out);
  return out;
}

Tensor& cumprod_out(Tensor& out, const Tensor& self, Dim dim, std::optional<DType> dtype) {
  run_scan("cumprod", kernels::ScanOp::product, self, dim,
           detail::dtype_for("cumprod", out, self, dtype), &out);
  return out;
}

Tensor& softmax_out(Tensor& out, const Tensor& self, Dim dim, std::optional<DType> dtype) {
  run_softmax("softmax", false, self, dim, dtype, &out);
  return out;
}

Tensor& log_softmax_out(Tensor& out, const Tensor& self, Dim dim, std::optional<DType> dtype) {
  run_softmax("log_softmax", true, self, dim, dtype, &out);
  return out;
}

}  // namespace gantry
