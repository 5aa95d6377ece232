#include "compat/nccl/reduction.hpp"

#include <optional>
#include <utility>

#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "compat/nccl/types/arithmetic.hpp"

namespace gantry::nccl_api {

Reduction::Reduction(const Rank& rank, const Operation& operation, Arrays arrays,
                     const Stream& stream)
    : rank_(rank),
      call_(operation),
      arrays_(std::move(arrays)),
      stream_(stream),
      type_(data_type(operation.type)),
      op_(operation.factor ? ReduceOp::sum : rank_operator(operation.op, type_)) {
  widens_ = type_.arithmetic == Arithmetic::small_float;
  divides_ = operation.op == ncclAvg && !type_.is_floating;
}

bool Reduction::receives() const {
  return call_.kind != OperationKind::reduce || rank_.rank == call_.peer;
}

Tensor Reduction::input() const { return reads_inputs() ? arrays_.send : prepared(); }

Tensor Reduction::output(const Tensor& input) const {
  if (!receives()) return {};
  if (!widens_) return arrays_.recv;
  if (!scatters()) return input;
  const StreamGuard guard(stream_);
  return empty({static_cast<std::int64_t>(call_.count)},
               {.dtype = DType::f32, .device = rank_.device});
}

// The input of the ranks, which stands for the program's, where the result goes. If this rank
// receives none, fewer or other elements, it is in memory of its own.
Tensor Reduction::prepared() const {
  const StreamGuard guard(stream_);
  const std::int64_t count = arrays_.send.numel();
  const bool fits = receives() && !scatters() && !widens_;
  const Tensor work =
      fits ? arrays_.recv : empty({count}, {.dtype = type_.reduced_as, .device = rank_.device});
  const void* source = call_.send;
  std::optional<Tensor> product;
  if (call_.factor) {
    product = widens_ ? empty({count}, {.dtype = DType::u8, .device = rank_.device}) : work;
    multiply(stream_, source, product->data(), count, call_.type, call_.factor->factor);
    source = product->data();
  }
  if (widens_) widen(stream_, source, work.data_ptr<float>(), count, call_.type);
  return work;
}

void Reduction::complete(const Tensor& output) const {
  if (!receives()) return;
  const auto count = static_cast<std::int64_t>(call_.count);
  if (widens_) narrow(stream_, output.data_ptr<float>(), call_.recv, count, call_.type);
  if (divides_) divide(stream_, call_.recv, count, call_.type, rank_.size);
}

}  // namespace gantry::nccl_api
