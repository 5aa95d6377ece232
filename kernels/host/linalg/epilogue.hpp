// The last step of a product: out = activation(alpha * product + beta * c).
#pragma once

#include <cstdint>

#include "kernels/host/host_fma.hpp"
#include "kernels/linalg/gemm.hpp"
#include "kernels/math/math.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels::host {

template <class Acc>
Acc activated(Acc value, Activation activation) {
  switch (activation) {
    case Activation::none:
      return value;
    case Activation::relu:
      return value < 0 ? Acc(0) : value;  // NaN stays
    case Activation::gelu_tanh:
      return static_cast<Acc>(math::gelu_tanh(static_cast<double>(value)));
  }
  __builtin_unreachable();
}

// A matrix with any strides.
template <class T>
struct StridedMatrix {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  StridedMatrix block(std::int64_t row, std::int64_t column) const {
    if (data == nullptr) return *this;
    return {data + row * row_stride + column * column_stride, row_stride, column_stride};
  }
  StridedMatrix transposed() const { return {data, column_stride, row_stride}; }
};

// `add` is null where beta is 0: c is not read then.
template <class T>
struct Epilogue {
  using Acc = AccumulatorType<T>;

  Acc alpha = 1;
  Acc beta = 0;
  Activation activation = Activation::none;

  // `from`: rows of accumulators, `stride` elements apart.
  void store(const StridedMatrix<T>& to, const StridedMatrix<const T>& add, const Acc* from,
             std::int64_t stride, std::int64_t rows, std::int64_t columns) const {
    if (add.data == nullptr && activation == Activation::none && to.column_stride == 1) {
      with_fma([=, this] {
        for (std::int64_t i = 0; i < rows; ++i) {
          T* const row = to.data + i * to.row_stride;
          const Acc* const sums = from + i * stride;
          for (std::int64_t j = 0; j < columns; ++j) row[j] = from_accumulator<T>(alpha * sums[j]);
        }
      });
      return;
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        Acc value = alpha * from[i * stride + j];
        if (add.data != nullptr) {
          value += beta * static_cast<Acc>(add.data[i * add.row_stride + j * add.column_stride]);
        }
        to.data[i * to.row_stride + j * to.column_stride] =
            from_accumulator<T>(activated(value, activation));
      }
    }
  }
};

}  // namespace gantry::kernels::host
