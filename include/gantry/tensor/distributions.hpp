#pragma once

#include <cstdint>
#include <utility>

#include <gantry/core/dim.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/tensor.hpp>

/// Random tensors of other distributions than those of random.hpp.
///
/// Each call is one draw of the generator (random.hpp). Its numbers have the same bits on the CPU,
/// on simulated devices and on every GPU.
/// Device/stream: current stream of the tensor's device; the host does not block.
/// The elements of arguments are checked for CPU tensors only.
/// Throws: DTypeError, ShapeError, DeviceMismatchError, InvalidArgument.
/// @since 0.3
namespace gantry {

/// Normal numbers with the same mean and standard deviation for all elements.
[[nodiscard]] GANTRY_API Tensor normal(double mean, double std, const Shape& sizes,
                                       const TensorOptions& options = {},
                                       GeneratorRef generator = {});
template <TensorOption T>
[[nodiscard]] Tensor normal(double mean, double std, const Shape& sizes, T option,
                            GeneratorRef generator = {}) {
  return normal(mean, std, sizes, detail::only(option), generator);
}
template <GeneratorArgument G, detail::AnyOptions O = TensorOptions>
[[nodiscard]] Tensor normal(double mean, double std, const Shape& sizes, G&& generator,
                            O options = {}) {
  return normal(mean, std, sizes, detail::only(options), std::forward<G>(generator));
}
/// Normal numbers, element by element with mean and standard deviation from `mean` and `std`.
/// Shapes: broadcast. DTypes: promoted, floating.
[[nodiscard]] GANTRY_API Tensor normal(const Tensor& mean, const Tensor& std,
                                       GeneratorRef generator = {});
[[nodiscard]] GANTRY_API Tensor normal(const Tensor& mean, double std = 1,
                                       GeneratorRef generator = {});
[[nodiscard]] GANTRY_API Tensor normal(double mean, const Tensor& std, GeneratorRef generator = {});

/// A slice of a tensor along `dim`: `length` indices from `start` on.
/// @since 0.3
struct Shard {
  Dim dim = 0;              ///< negative: from the last
  std::int64_t start = 0;   ///< first index
  std::int64_t length = 0;  ///< number of indices
};
/// `rand(sizes, options, generator).narrow(dim, start, length)`, without computing the rest of that
/// tensor. Ranks with equal generators can thus each fill their shard of one tensor. Throws:
/// IndexError for a dim or a shard out of range.
[[nodiscard]] GANTRY_API Tensor rand_shard(const Shape& sizes, const Shard& shard,
                                           const TensorOptions& options = {},
                                           GeneratorRef generator = {});
/// As rand_shard, for randn(sizes, options, generator).
[[nodiscard]] GANTRY_API Tensor randn_shard(const Shape& sizes, const Shard& shard,
                                            const TensorOptions& options = {},
                                            GeneratorRef generator = {});

/// Poisson numbers, element by element with the rate from `rates`. A negative rate gives NaN on a
/// device, and InvalidArgument on the CPU. Shapes, DTypes, device: those of `rates`, floating.
[[nodiscard]] GANTRY_API Tensor poisson(const Tensor& rates, GeneratorRef generator = {});

/// Random indices with probabilities that are proportional to `weights`.
///
/// Without `replacement` the indices of a row are distinct, samples is at most n, and the cost is
/// that of topk. Weights are not negative, and each row has at least one non-zero weight. If a row
/// on a device has fewer non-zero weights than samples without replacement, indices of weight 0
/// fill the rest.
/// Shapes: [n] → [samples]; [rows, n] → [rows, samples]. DTypes: floating → i64.
/// Throws: InvalidArgument for a number of samples below 1 or too large; on the CPU also for
/// negative, infinite or NaN weights and for rows with too few non-zero weights. NotSupported as
/// topk, without replacement on a GPU.
[[nodiscard]] GANTRY_API Tensor multinomial(const Tensor& weights, std::int64_t samples,
                                            bool replacement = false, GeneratorRef generator = {});

}  // namespace gantry
