#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <gantry/core/export.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/tensor.hpp>

/// Running extrema, running logarithms of sums, and differences of neighbours. cumsum and cumprod
/// are in reductions.hpp.
///
/// Shapes: the input's, except for diff. A 0-dim tensor has dim 0, of size 1.
/// Device/stream: current stream of the tensor's device; the host does not block.
/// Aliasing: the results are new memory. `op_out(out, …)` writes to `out`, which has the result's
/// shape, dtype and device, in any layout. It may not overlap the input or another output.
/// Throws: IndexError for a dim out of range, ShapeError, DTypeError, DeviceMismatchError,
/// InvalidArgument. After an exception nothing has changed.
namespace gantry {

/// Running maximum along `dim` and its index (i64). NaN propagates. Of equal elements the last one
/// counts. The results have the same bits on the CPU, on simulated devices and on every GPU.
[[nodiscard]] GANTRY_API ValuesAndIndices cummax(const Tensor& self, int dim);
GANTRY_API std::tuple<Tensor&, Tensor&> cummax_out(Tensor& values, Tensor& indices,
                                                   const Tensor& self, int dim);
/// Running minimum along `dim` and its index (i64). As cummax.
[[nodiscard]] GANTRY_API ValuesAndIndices cummin(const Tensor& self, int dim);
GANTRY_API std::tuple<Tensor&, Tensor&> cummin_out(Tensor& values, Tensor& indices,
                                                   const Tensor& self, int dim);
/// log(cumsum(exp(x))) along `dim`, without overflow. DTypes: floating; f16 and bf16 accumulate in
/// f32, f32 in f64. The order of the sums depends on the length only, but exp and log are those of
/// the platform: a GPU's results may differ from the CPU's by rounding.
[[nodiscard]] GANTRY_API Tensor logcumsumexp(const Tensor& self, int dim);
GANTRY_API Tensor& logcumsumexp_out(Tensor& out, const Tensor& self, int dim);
/// Differences of neighbours along `dim`, `n` times: out[i] = self[i + 1] - self[i]. `prepend` and
/// `append` are joined to the input first. Shapes: `dim` is n smaller, at least 0. DTypes: the
/// promoted one of the parts; bool gives bool: whether the neighbours differ.
[[nodiscard]] GANTRY_API Tensor diff(const Tensor& self, std::int64_t n = 1, int dim = -1,
                                     const std::optional<Tensor>& prepend = {},
                                     const std::optional<Tensor>& append = {});
GANTRY_API Tensor& diff_out(Tensor& out, const Tensor& self, std::int64_t n = 1, int dim = -1,
                            const std::optional<Tensor>& prepend = {},
                            const std::optional<Tensor>& append = {});

}  // namespace gantry
