#pragma once

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Activation functions of neural networks. relu, gelu, silu, sigmoid and tanh are in
/// elementwise.hpp.
///
/// Shapes, device, stream, aliasing and `op_out`: as in elementwise.hpp.
/// DTypes: floating; hardtanh and relu6 also integers. f16, bf16 and f32 compute in f64 and round
/// once. leaky_relu rounds its exact result once.
/// Throws: DTypeError, InvalidArgument; with `out`, ShapeError, DeviceMismatchError.
/// @since 0.3
namespace gantry {

/// log(1 + exp(beta x)) / beta; x where beta x is above `threshold`.
[[nodiscard]] GANTRY_API Tensor softplus(const Tensor& self, double beta = 1,
                                         double threshold = 20);
GANTRY_API Tensor& softplus_out(Tensor& out, const Tensor& self, double beta = 1,
                                double threshold = 20);
/// log(sigmoid(x)), accurate for large |x|.
[[nodiscard]] GANTRY_API Tensor log_sigmoid(const Tensor& self);
GANTRY_API Tensor& log_sigmoid_out(Tensor& out, const Tensor& self);
/// x where it is positive, else negative_slope * x.
[[nodiscard]] GANTRY_API Tensor leaky_relu(const Tensor& self, double negative_slope = 0.01);
GANTRY_API Tensor& leaky_relu_out(Tensor& out, const Tensor& self, double negative_slope = 0.01);
/// scale * x where x is positive, else scale * alpha * (exp(input_scale * x) - 1).
[[nodiscard]] GANTRY_API Tensor elu(const Tensor& self, double alpha = 1, double scale = 1,
                                    double input_scale = 1);
GANTRY_API Tensor& elu_out(Tensor& out, const Tensor& self, double alpha = 1, double scale = 1,
                           double input_scale = 1);
/// elu with the alpha and scale of self-normalizing networks.
[[nodiscard]] GANTRY_API Tensor selu(const Tensor& self);
GANTRY_API Tensor& selu_out(Tensor& out, const Tensor& self);
/// elu(x, alpha, 1, 1 / alpha), which has a continuous derivative. Throws: InvalidArgument if alpha
/// is 0.
[[nodiscard]] GANTRY_API Tensor celu(const Tensor& self, double alpha = 1);
GANTRY_API Tensor& celu_out(Tensor& out, const Tensor& self, double alpha = 1);
/// gelu, approximated by x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): PyTorch's gelu with
/// approximate="tanh".
[[nodiscard]] GANTRY_API Tensor gelu_tanh(const Tensor& self);
GANTRY_API Tensor& gelu_tanh_out(Tensor& out, const Tensor& self);
/// x clamped to [low, high]; NaN stays NaN. For integers the limits are truncated. Throws:
/// InvalidArgument if low is above high.
[[nodiscard]] GANTRY_API Tensor hardtanh(const Tensor& self, double low = -1, double high = 1);
GANTRY_API Tensor& hardtanh_out(Tensor& out, const Tensor& self, double low = -1, double high = 1);
/// hardtanh(x, 0, 6).
[[nodiscard]] GANTRY_API Tensor relu6(const Tensor& self);
GANTRY_API Tensor& relu6_out(Tensor& out, const Tensor& self);

}  // namespace gantry
