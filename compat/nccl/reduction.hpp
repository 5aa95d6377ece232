// The elementwise work around a reduction of NCCL's interface.
#pragma once

#include <cstdint>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "compat/nccl/operation.hpp"
#include "compat/nccl/rank.hpp"
#include "compat/nccl/types/data_type.hpp"

namespace gantry::nccl_api {

// A reduction whose inputs and results may need work before and after it. See Arithmetic.
class Reduction {
 public:
  // `operation` outlives it. Throws: InvalidArgument for an operator that the type does not have.
  Reduction(const Rank& rank, const Operation& operation, Arrays arrays, const Stream& stream);

  [[nodiscard]] ReduceOp op() const { return op_; }
  // Enqueues the work before it. Returns what the ranks reduce: the program's input, or what is
  // written where the result goes, or memory of its own.
  [[nodiscard]] Tensor input() const;
  // Where the ranks write the result, for that `input`. Undefined on ranks that receive nothing.
  [[nodiscard]] Tensor output(const Tensor& input) const;
  // Enqueues the work after it.
  void complete(const Tensor& output) const;

 private:
  [[nodiscard]] bool scatters() const { return call_.kind == OperationKind::reduce_scatter; }
  [[nodiscard]] bool receives() const;
  // True if ranks reduce the program's own inputs.
  [[nodiscard]] bool reads_inputs() const { return !widens_ && !call_.factor; }
  [[nodiscard]] Tensor prepared() const;

  const Rank& rank_;
  const Operation& call_;
  const Arrays arrays_;
  const Stream stream_;
  const DataType& type_;
  ReduceOp op_;
  bool widens_ = false;
  bool divides_ = false;
};

}  // namespace gantry::nccl_api
