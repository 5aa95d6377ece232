// Tables of calls with bad arguments.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

namespace gantry::testing {

/// The tensors of the calls, on one device. No call changes them.
struct Operands {
  explicit Operands(Device device)
      : place(device),
        a(arange(6, {.dtype = f32, .device = device}).view({2, 3})),
        integers(arange(6, {.device = device}).view({2, 3})),
        mask(zeros({2, 3}, {.dtype = bool_, .device = device})),
        vector(ones({4}, {.device = device})),
        scalar(ones({}, {.device = device})),
        repeated(ones({1, 3}, {.device = device}).expand({2, 3})) {}

  [[nodiscard]] std::vector<Tensor> all() const {
    return {a, integers, mask, vector, scalar, repeated};
  }

  Device place;
  Tensor a;         ///< f32 [2, 3]
  Tensor integers;  ///< i64 [2, 3]
  Tensor mask;      ///< bool [2, 3]
  Tensor vector;    ///< f32 [4]
  Tensor scalar;    ///< f32 []
  Tensor repeated;  ///< f32 [2, 3], two rows in one memory
  Tensor undefined;
};

/// One call and its expected error.
struct BadInput {
  std::string function;
  std::string kind;  ///< class of the exception
  std::string text;  ///< part of its text
  std::function<void(Operands&)> call;
  int needs_devices = 0;  ///< runs only with at least this many devices, and only on a device

  bool without_tensors = false;  ///< the call has no tensors, so the error names no device

  /// True if the error is about shapes or dtypes of existing tensors, and therefore names a device.
  [[nodiscard]] bool names_device() const {
    return !without_tensors && (kind == "ShapeError" || kind == "IndexError" ||
                                kind == "DTypeError" || kind == "DeviceMismatchError");
  }
};

inline std::ostream& operator<<(std::ostream& out, const BadInput& row) {
  return out << row.function << ": " << row.text;
}

std::vector<BadInput> bad_factory_inputs();
std::vector<BadInput> bad_function_inputs();
std::vector<BadInput> bad_view_inputs();
std::vector<BadInput> bad_index_inputs();
std::vector<BadInput> bad_copy_inputs();
std::vector<BadInput> bad_elementwise_inputs();
std::vector<BadInput> bad_math_inputs();
std::vector<BadInput> bad_sorting_inputs();

}  // namespace gantry::testing
