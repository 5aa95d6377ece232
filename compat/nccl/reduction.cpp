#include "compat/nccl/reduction.hpp"

#include <optional>

#include <gantry/tensor/factories.hpp>

#include "compat/nccl/arithmetic.hpp"

namespace gantry::nccl_api {

Reduction::Reduction(const Rank& rank, const Operation& operation, const Stream& stream)
    : rank_(rank),
      call_(operation),
      stream_(stream),
      type_(data_type(operation.type)),
      op_(operation.factor ? ReduceOp::sum : rank_operator(operation.op, type_)) {
  const bool orders = op_ == ReduceOp::min || op_ == ReduceOp::max;
  flips_ = type_.arithmetic == Arithmetic::unsigned_ && orders;
  widens_ = type_.arithmetic == Arithmetic::small_float;
  divides_ = operation.op == ncclAvg && !type_.is_floating;
  // Kernels that get a wrong address destroy the device's context.
  if (!reads_inputs() || divides_) check_memory(rank, operation);
}

bool Reduction::receives() const {
  return call_.kind != OperationKind::reduce || rank_.rank == call_.peer;
}

Tensor Reduction::input() const {
  const auto count = static_cast<std::int64_t>(call_.count) * (scatters() ? rank_.size : 1);
  if (reads_inputs()) return array_at(call_.send, count, type_.reduced_as, rank_.device);
  return prepared(count, receives() && !scatters() ? call_.recv : nullptr);
}

Tensor Reduction::output(const Tensor& input) const {
  if (!receives()) return {};
  const auto count = static_cast<std::int64_t>(call_.count);
  if (!widens_) return array_at(call_.recv, count, type_.reduced_as, rank_.device);
  return scatters() ? empty({count}, {.dtype = DType::f32, .device = rank_.device}) : input;
}

// The input of the ranks, which stands for the program's: at `place`, or in memory of its own if
// that is null or has other elements.
Tensor Reduction::prepared(std::int64_t count, void* place) const {
  const bool fits = place != nullptr && !widens_;
  const Tensor work = fits ? array_at(place, count, type_.reduced_as, rank_.device)
                           : empty({count}, {.dtype = type_.reduced_as, .device = rank_.device});
  if (count == 0) return work;
  const void* source = call_.send;
  std::optional<Tensor> product;
  if (call_.factor) {
    product = widens_ ? empty({count}, {.dtype = DType::u8, .device = rank_.device}) : work;
    multiply(stream_, source, product->data(), count, call_.type, call_.factor->factor);
    source = product->data();
  }
  if (widens_) {
    widen(stream_, source, work.data_ptr<float>(), count, call_.type);
  } else if (flips_) {
    flip_sign(stream_, source, work.data(), count, element_bytes(call_.type));
  }
  return work;
}

void Reduction::complete(const Tensor& output) const {
  const auto count = static_cast<std::int64_t>(call_.count);
  if (count == 0 || !receives()) return;
  if (widens_) narrow(stream_, output.data_ptr<float>(), call_.recv, count, call_.type);
  if (flips_) flip_sign(stream_, output.data(), call_.recv, count, element_bytes(call_.type));
  if (divides_) divide(stream_, call_.recv, count, call_.type, rank_.size);
}

}  // namespace gantry::nccl_api
