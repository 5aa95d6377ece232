#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// Choices of GradientBuckets; equal on all ranks.
/// @since 0.3
struct GradientBucketOptions {
  /// The most bytes of a bucket. A larger gradient has a bucket of its own.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// How gradients are reduced over the ranks.
  ReduceOp op = ReduceOp::avg;
  /// Options of each bucket's all_reduce_coalesced().
  CollectiveOptions collective = {};
};

/// Reduces the gradients of a data-parallel step over all ranks while the rest is still computed.
///
/// The gradients fill buckets of one dtype from the last gradient to the first, as a backward pass
/// computes them. A bucket is reduced in place by one all_reduce_coalesced(), as soon as its
/// gradients are ready. Results have the bits of one all_reduce() for each gradient.
///
/// The order of ready() may differ between ranks. Buckets start in the order of the buckets on
/// every rank: a bucket that is complete early starts after the buckets before it. So all ranks
/// make the same calls. Gradients, and other calls on the communicator, are equal on all ranks as
/// in Communicator.
///
/// Device/stream: buckets are reduced on a stream of the pool, which waits for the streams that
/// were current at ready(). The host does not wait, unless transport() is "host". A step may be
/// captured into a graph. Steps take memory of buckets from the cache of the stream.
/// Aliasing: the tensors that are given are reduced. The program writes each one again before the
/// next ready(), on a stream that waited for finish() or ran it.
/// Thread safety: one thread at a time.
/// @code
/// const Communicator world = Communicator::world();
/// const std::vector<Tensor> gradients{ones({4}, world.device()), ones({2}, world.device())};
/// GradientBuckets buckets(world, gradients);
/// for (const Tensor& gradient : gradients) buckets.ready(gradient.fill_(1));
/// buckets.finish();  // later work reads the averages
/// @endcode
/// @since 0.3
class GANTRY_API GradientBuckets {
 public:
  /// `gradients`: of the parameters, in the order of the forward pass. Shapes and dtypes are equal
  /// on all ranks; ranks do not meet here.
  /// Throws: InvalidArgument for an undefined communicator, no gradient, an undefined one,
  /// gradients that share memory, or buckets of 0 bytes; DeviceMismatchError for a gradient that is
  /// not on the communicator's device; DTypeError if its dtype does not support the op.
  GradientBuckets(const Communicator& communicator, std::vector<Tensor> gradients,
                  GradientBucketOptions options = {});
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// Does not wait. The gradients' memory is reused only after the reductions that use it.
  ~GradientBuckets();

  /// Tells that the work on the current stream writes gradient `index` of this step. Starts the
  /// buckets that are complete.
  /// Throws, before anything changes: InvalidArgument for an index that is not there, or for a
  /// gradient that is ready already. As Communicator::all_reduce_coalesced(). After an error of a
  /// bucket the step cannot be finished.
  void ready(std::size_t index);
  /// As above, by the tensor, or by another handle of the same elements.
  /// Throws: InvalidArgument also for a tensor that was not given to the constructor.
  void ready(const Tensor& gradient);
  /// Makes the current stream wait for the reductions of this step, and begins the next step.
  /// Throws, before anything changes: InvalidArgument that names the first gradient that is not
  /// ready. The step then goes on.
  void finish();

  /// The gradients, as given.
  [[nodiscard]] const std::vector<Tensor>& gradients() const noexcept;
  /// The gradients of each bucket, in the order in which buckets start.
  [[nodiscard]] std::vector<std::vector<std::size_t>> buckets() const;

 private:
  class GANTRY_LOCAL Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
