#pragma once

#include <cstdint>

#include <gantry/core/export.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/tensor.hpp>

/// Random tensors of further distributions.
///
/// Each call is one draw of the generator (random.hpp). Its numbers have the same bits on the CPU,
/// on simulated devices and on every GPU.
/// Device/stream: current stream of the tensor's device; the host does not block.
/// Values of tensors are checked on the CPU only.
/// Throws: DTypeError, ShapeError, DeviceMismatchError, InvalidArgument.
namespace gantry {

/// Normal numbers with one mean and standard deviation.
[[nodiscard]] GANTRY_API Tensor normal(double mean, double std, const Shape& sizes,
                                       const TensorOptions& options = {},
                                       GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor normal(double mean, double std, const Shape& sizes, T option,
                            GeneratorRef generator = {}) {
  return normal(mean, std, sizes, detail::only(option), generator);
}
/// Normal numbers with the mean and standard deviation in the same element of `mean` and `std`.
/// Shapes: broadcast. DTypes: promoted, floating.
[[nodiscard]] GANTRY_API Tensor normal(const Tensor& mean, const Tensor& std,
                                       GeneratorRef generator = {});
[[nodiscard]] GANTRY_API Tensor normal(const Tensor& mean, double std = 1,
                                       GeneratorRef generator = {});
[[nodiscard]] GANTRY_API Tensor normal(double mean, const Tensor& std, GeneratorRef generator = {});

/// A part of a tensor: the indices from `start`, `length` of them, along `dim`.
struct Shard {
  int dim = 0;              ///< negative: from the last
  std::int64_t start = 0;   ///< first index
  std::int64_t length = 0;  ///< number of indices
};
/// `rand(sizes, options, generator).narrow(dim, start, length)` without the rest of that tensor:
/// the cost is that of the part. Ranks whose generators are equal can each fill their own part of
/// one tensor. Throws: IndexError for a dim or a part out of range.
[[nodiscard]] GANTRY_API Tensor rand_shard(const Shape& sizes, const Shard& shard,
                                           const TensorOptions& options = {},
                                           GeneratorRef generator = {});
/// The same part of randn(sizes, options, generator).
[[nodiscard]] GANTRY_API Tensor randn_shard(const Shape& sizes, const Shard& shard,
                                            const TensorOptions& options = {},
                                            GeneratorRef generator = {});

/// Poisson numbers with the rate in the same element of `rates`; NaN for a negative rate. Shapes,
/// DTypes, device: those of `rates`, floating. Throws: InvalidArgument for a negative rate on the
/// CPU.
[[nodiscard]] GANTRY_API Tensor poisson(const Tensor& rates, GeneratorRef generator = {});

/// Indices, drawn with probabilities that are proportional to `weights`.
///
/// Shapes: [n] → [samples]; [rows, n] → [rows, samples]. DTypes: floating → i64. Weights are not
/// negative, and a row has at least one that is not 0. Without `replacement` the indices of a row
/// differ; samples is then at most n, and the cost is that of topk. n has no limit, except that of
/// topk on a GPU without replacement. On a device, samples beyond the weights other than 0 are
/// indices of weight 0.
/// Throws: InvalidArgument for a number of samples below 1 or too large; on the CPU also for
/// negative, infinite or NaN weights and rows with too few weights other than 0.
[[nodiscard]] GANTRY_API Tensor multinomial(const Tensor& weights, std::int64_t samples,
                                            bool replacement = false, GeneratorRef generator = {});

}  // namespace gantry
