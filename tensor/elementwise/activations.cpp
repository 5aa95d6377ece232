#include <gantry/tensor/activations.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "kernels/elementwise/special.hpp"
#include "tensor/check.hpp"
#include "tensor/elementwise/elementwise_plan.hpp"

namespace gantry {

namespace {

using kernels::SpecialOp;
using kernels::SpecialParameters;

Tensor run(std::string_view name, SpecialOp op, Tensor* out, const Tensor& self,
           const SpecialParameters& parameters = {}) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  const DType dtype = plan.promoted();
  detail::check_floating(name, dtype, plan.device());
  plan.set_types(dtype, dtype);
  kernels::special(plan.target(), op, plan.output(), plan.tensor_input(0), parameters);
  return plan.finish();
}

Tensor run_elu(std::string_view name, Tensor* out, const Tensor& self, double alpha, double scale,
               double input_scale) {
  return run(name, SpecialOp::elu, out, self, {.a = alpha * scale, .b = scale, .c = input_scale});
}

Tensor run_celu(Tensor* out, const Tensor& self, double alpha) {
  if (alpha == 0) throw InvalidArgument("celu: expected alpha other than 0, but got 0");
  return run_elu("celu", out, self, alpha, 1, 1 / alpha);
}

Tensor run_hardtanh(std::string_view name, Tensor* out, const Tensor& self, double low,
                    double high) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  if (!(low <= high)) {
    throw InvalidArgument(
        fmt::format("{}: expected low of at most high, but got {} and {}", name, low, high),
        plan.device().str());
  }
  const DType dtype = plan.promoted();
  if (dtype == DType::bool_) {
    throw DTypeError(fmt::format("{}: expected a tensor of numbers, but got Bool", name),
                     plan.device().str());
  }
  plan.set_types(dtype, dtype);
  // A limit outside an integer type's range becomes the type's limit.
  kernels::ternary(plan.target(), kernels::TernaryOp::clamp, plan.output(), plan.tensor_input(0),
                   Scalar(low), Scalar(high));
  return plan.finish();
}

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

}  // namespace

Tensor softplus(const Tensor& self, double beta, double threshold) {
  return run("softplus", SpecialOp::softplus, nullptr, self, {.a = beta, .b = threshold});
}
Tensor& softplus_out(Tensor& out, const Tensor& self, double beta, double threshold) {
  run("softplus", SpecialOp::softplus, &out, self, {.a = beta, .b = threshold});
  return out;
}

Tensor log_sigmoid(const Tensor& self) {
  return run("log_sigmoid", SpecialOp::log_sigmoid, nullptr, self);
}
Tensor& log_sigmoid_out(Tensor& out, const Tensor& self) {
  run("log_sigmoid", SpecialOp::log_sigmoid, &out, self);
  return out;
}

Tensor leaky_relu(const Tensor& self, double negative_slope) {
  return run("leaky_relu", SpecialOp::leaky_relu, nullptr, self, {.a = negative_slope});
}
Tensor& leaky_relu_out(Tensor& out, const Tensor& self, double negative_slope) {
  run("leaky_relu", SpecialOp::leaky_relu, &out, self, {.a = negative_slope});
  return out;
}

Tensor elu(const Tensor& self, double alpha, double scale, double input_scale) {
  return run_elu("elu", nullptr, self, alpha, scale, input_scale);
}
Tensor& elu_out(Tensor& out, const Tensor& self, double alpha, double scale, double input_scale) {
  run_elu("elu", &out, self, alpha, scale, input_scale);
  return out;
}

Tensor selu(const Tensor& self) {
  return run_elu("selu", nullptr, self, kSeluAlpha, kSeluScale, 1);
}
Tensor& selu_out(Tensor& out, const Tensor& self) {
  run_elu("selu", &out, self, kSeluAlpha, kSeluScale, 1);
  return out;
}

Tensor celu(const Tensor& self, double alpha) { return run_celu(nullptr, self, alpha); }
Tensor& celu_out(Tensor& out, const Tensor& self, double alpha) {
  run_celu(&out, self, alpha);
  return out;
}

Tensor hardtanh(const Tensor& self, double low, double high) {
  return run_hardtanh("hardtanh", nullptr, self, low, high);
}
Tensor& hardtanh_out(Tensor& out, const Tensor& self, double low, double high) {
  run_hardtanh("hardtanh", &out, self, low, high);
  return out;
}

Tensor gelu_tanh(const Tensor& self) {
  return run("gelu_tanh", SpecialOp::gelu_tanh, nullptr, self);
}
Tensor& gelu_tanh_out(Tensor& out, const Tensor& self) {
  run("gelu_tanh", SpecialOp::gelu_tanh, &out, self);
  return out;
}

Tensor relu6(const Tensor& self) { return run_hardtanh("relu6", nullptr, self, 0, 6); }
Tensor& relu6_out(Tensor& out, const Tensor& self) {
  run_hardtanh("relu6", &out, self, 0, 6);
  return out;
}

}  // namespace gantry
