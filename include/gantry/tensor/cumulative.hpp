#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/tensor.hpp>

/// Cumulative maxima, minima and log-sum-exp, and differences of neighbours. cumsum and cumprod are
/// in reductions.hpp.
///
/// Shapes: the input's, except for diff. A 0-dim tensor has dim 0, of size 1.
/// Device/stream: current stream of the tensor's device; the host does not block.
/// Aliasing: the results are new memory. `op_out(out, …)` writes to `out`, which has the result's
/// shape, dtype and device, in any layout. It may not overlap the input or another output.
/// Throws: IndexError for a dim out of range, ShapeError, DTypeError, DeviceMismatchError,
/// InvalidArgument. After an exception nothing has changed.
/// @since 0.3
namespace gantry {

/// Cumulative maximum along `dim` and its index (i64). NaN propagates. Of equal elements the index
/// is that of the last. The results have the same bits on the CPU, on simulated devices and on
/// every GPU.
[[nodiscard]] GANTRY_API ValuesAndIndices cummax(const Tensor& self, Dim dim);
GANTRY_API std::tuple<Tensor&, Tensor&> cummax_out(Tensor& values, Tensor& indices,
                                                   const Tensor& self, Dim dim);
/// Cumulative minimum along `dim` and its index (i64). Otherwise as cummax.
[[nodiscard]] GANTRY_API ValuesAndIndices cummin(const Tensor& self, Dim dim);
GANTRY_API std::tuple<Tensor&, Tensor&> cummin_out(Tensor& values, Tensor& indices,
                                                   const Tensor& self, Dim dim);
/// log(cumsum(exp(x))) along `dim`, without overflow. DTypes: floating; f16 and bf16 accumulate in
/// f32, f32 in f64. The order of the sums depends on the length only. Results of GPU and CPU may
/// differ by rounding, because exp and log differ between platforms.
[[nodiscard]] GANTRY_API Tensor logcumsumexp(const Tensor& self, Dim dim);
GANTRY_API Tensor& logcumsumexp_out(Tensor& out, const Tensor& self, Dim dim);
/// Differences of neighbours along `dim`, `n` times: out[i] = self[i + 1] - self[i]. `prepend` and
/// `append` are joined to the input first. Shapes: the size of `dim` shrinks by n, to at least 0.
/// DTypes: promoted. For bool the result is true where neighbours differ.
[[nodiscard]] GANTRY_API Tensor diff(const Tensor& self, std::int64_t n = 1, Dim dim = -1,
                                     const std::optional<Tensor>& prepend = {},
                                     const std::optional<Tensor>& append = {});
GANTRY_API Tensor& diff_out(Tensor& out, const Tensor& self, std::int64_t n = 1, Dim dim = -1,
                            const std::optional<Tensor>& prepend = {},
                            const std::optional<Tensor>& append = {});

}  // namespace gantry
