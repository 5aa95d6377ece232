#pragma once

#include <optional>
#include <vector>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/rearrangements.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/tensor.hpp>

/// Reductions, joins and products with an output.
///
/// `op_out(out, …)` writes the result of `op(…)` to `out` and returns it. `out` has the result's
/// shape: it is never resized. Its dtype is one to which the result can be cast (can_cast).
/// Without a `dtype`, sum_out, prod_out, mean_out, cumsum_out and cumprod_out compute in the dtype
/// of `out` if the result can be cast to it.
/// Device/stream: as `op`; `out` is on the operands' device.
/// Aliasing: in reductions and products `out` may overlap operands in any way. If it does, or is
/// not contiguous, the result is computed in new memory and copied. The output of a join may not
/// overlap an input.
/// Throws: as `op`; ShapeError, DTypeError, DeviceMismatchError or InvalidArgument (elements that
/// share memory) for `out`. After an exception nothing has changed.
/// @since 0.3
namespace gantry {

/// The reduction or scan of that name.
/// @{
GANTRY_API Tensor& sum_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                           bool keepdim = false, std::optional<DType> dtype = {});
GANTRY_API Tensor& prod_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                            bool keepdim = false, std::optional<DType> dtype = {});
GANTRY_API Tensor& mean_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                            bool keepdim = false, std::optional<DType> dtype = {});
GANTRY_API Tensor& amax_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                            bool keepdim = false);
GANTRY_API Tensor& amin_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                            bool keepdim = false);
GANTRY_API Tensor& any_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                           bool keepdim = false);
GANTRY_API Tensor& all_out(Tensor& out, const Tensor& self, const Axes& dims = {},
                           bool keepdim = false);
GANTRY_API Tensor& argmax_out(Tensor& out, const Tensor& self, std::optional<Dim> dim = {},
                              bool keepdim = false);
GANTRY_API Tensor& argmin_out(Tensor& out, const Tensor& self, std::optional<Dim> dim = {},
                              bool keepdim = false);
GANTRY_API Tensor& count_nonzero_out(Tensor& out, const Tensor& self, const Axes& dims = {});
GANTRY_API Tensor& norm_out(Tensor& out, const Tensor& self, double p = 2, const Axes& dims = {},
                            bool keepdim = false);
GANTRY_API Tensor& var_out(Tensor& out, const Tensor& self, const VarianceOptions& options = {});
GANTRY_API Tensor& std_out(Tensor& out, const Tensor& self, const VarianceOptions& options = {});
GANTRY_API Tensor& logsumexp_out(Tensor& out, const Tensor& self, const Axes& dims,
                                 bool keepdim = false);
GANTRY_API Tensor& cumsum_out(Tensor& out, const Tensor& self, Dim dim,
                              std::optional<DType> dtype = {});
GANTRY_API Tensor& cumprod_out(Tensor& out, const Tensor& self, Dim dim,
                               std::optional<DType> dtype = {});
GANTRY_API Tensor& softmax_out(Tensor& out, const Tensor& self, Dim dim,
                               std::optional<DType> dtype = {});
GANTRY_API Tensor& log_softmax_out(Tensor& out, const Tensor& self, Dim dim,
                                   std::optional<DType> dtype = {});
/// @}

/// The join of that name.
/// @{
GANTRY_API Tensor& cat_out(Tensor& out, const std::vector<Tensor>& tensors, Dim dim = 0);
GANTRY_API Tensor& stack_out(Tensor& out, const std::vector<Tensor>& tensors, Dim dim = 0);
GANTRY_API Tensor& hstack_out(Tensor& out, const std::vector<Tensor>& tensors);
GANTRY_API Tensor& vstack_out(Tensor& out, const std::vector<Tensor>& tensors);
GANTRY_API Tensor& dstack_out(Tensor& out, const std::vector<Tensor>& tensors);
GANTRY_API Tensor& column_stack_out(Tensor& out, const std::vector<Tensor>& tensors);
/// @}

/// The product of that name. In addmm_out, addmm_activation_out, baddbmm_out and addmv_out, `out`
/// may be `self`.
/// @{
GANTRY_API Tensor& matmul_out(Tensor& out, const Tensor& a, const Tensor& b);
GANTRY_API Tensor& mm_out(Tensor& out, const Tensor& a, const Tensor& b);
GANTRY_API Tensor& bmm_out(Tensor& out, const Tensor& a, const Tensor& b);
GANTRY_API Tensor& mv_out(Tensor& out, const Tensor& matrix, const Tensor& vector);
GANTRY_API Tensor& dot_out(Tensor& out, const Tensor& a, const Tensor& b);
GANTRY_API Tensor& outer_out(Tensor& out, const Tensor& a, const Tensor& b);
GANTRY_API Tensor& addmm_out(Tensor& out, const Tensor& self, const Tensor& mat1,
                             const Tensor& mat2, const Scalar& beta = 1, const Scalar& alpha = 1);
GANTRY_API Tensor& addmm_activation_out(Tensor& out, const Tensor& self, const Tensor& mat1,
                                        const Tensor& mat2, Activation activation,
                                        const Scalar& beta = 1, const Scalar& alpha = 1);
GANTRY_API Tensor& linear_out(Tensor& out, const Tensor& input, const Tensor& weight,
                              const std::optional<Tensor>& bias = {},
                              Activation activation = Activation::none);
GANTRY_API Tensor& baddbmm_out(Tensor& out, const Tensor& self, const Tensor& batch1,
                               const Tensor& batch2, const Scalar& beta = 1,
                               const Scalar& alpha = 1);
GANTRY_API Tensor& addmv_out(Tensor& out, const Tensor& self, const Tensor& matrix,
                             const Tensor& vector, const Scalar& beta = 1, const Scalar& alpha = 1);
/// @}

}  // namespace gantry
