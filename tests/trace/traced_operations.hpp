// The operations on tensors that submit work, each with the name that a trace gives it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace gantry::testing {

/// The tensors that operations get.
struct TracedInputs {
  explicit TracedInputs(Device device);

  Device device;
  Tensor a, b;         // f32 [6, 6], in (0, 1)
  Tensor v, w;         // f32 [6]
  Tensor batch;        // f32 [2, 6, 6]
  Tensor sorted;       // f32 [6]
  Tensor i, j;         // i64 [6, 6], in [0, 6)
  Tensor index;        // i64 [6], 0 … 5
  Tensor mask, bools;  // bool [6, 6]
  Tensor out, values;  // f32 [6, 6], f32 [6]
  Tensor half;         // f16 [6, 6]
  jit::Elementwise square_sum;
};

struct TracedOperation {
  std::string name;  // of the event
  std::string text;  // of the call
  std::function<void(const TracedInputs&)> call;
};

[[nodiscard]] std::vector<TracedOperation> traced_operations();

}  // namespace gantry::testing
