#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/host/linalg/matrix_product.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/math/math.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels::host {

namespace {

// One matrix of `tensor` as row-major elements of type Acc: the tensor's memory if it has that
// layout, else a copy in `packed`.
template <class T, class Acc>
RowMajor<const Acc> row_major(const TensorRef& tensor, std::int64_t batch,
                              std::vector<Acc>& packed) {
  const std::int64_t rows = tensor.sizes[1];
  const std::int64_t columns = tensor.sizes[2];
  const std::int64_t row_stride = tensor.strides[1];
  const std::int64_t column_stride = tensor.strides[2];
  const T* data = static_cast<const T*>(tensor.data) + batch * tensor.strides[0];
  if constexpr (std::is_same_v<T, Acc>) {
    if (column_stride == 1 && row_stride >= columns) {
      return {data, rows, columns, row_stride};
    }
  }
  packed.resize(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      packed[i * columns + j] = static_cast<Acc>(data[i * row_stride + j * column_stride]);
    }
  }
  return {packed.data(), rows, columns, columns};
}

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

// One batch of `tensor`, whose rows are contiguous elements of the accumulator's type, to be
// written by a product; else null.
template <class T, class Acc>
Acc* product_memory(const TensorRef& out, std::int64_t batch) {
  if constexpr (std::is_same_v<T, Acc>) {
    if (out.strides[2] == 1 && out.strides[1] >= out.sizes[2]) {
      return static_cast<T*>(out.data) + batch * out.strides[0];
    }
  }
  return nullptr;
}

template <class T>
void gemm_batches(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                  double alpha, double beta, Activation activation) {
  using Acc = AccumulatorType<T>;
  std::vector<Acc> packed_a;
  std::vector<Acc> packed_b;
  std::vector<Acc> packed_product;
  const std::int64_t rows = out.sizes[1];
  const std::int64_t columns = out.sizes[2];
  for (std::int64_t batch = 0; batch < out.sizes[0]; ++batch) {
    RowMajor<Acc> product{nullptr, rows, columns, out.strides[1]};
    // `c` may be `out`.
    if (beta == 0) product.data = product_memory<T, Acc>(out, batch);
    if (product.data == nullptr) {
      packed_product.resize(static_cast<std::size_t>(rows * columns));
      product = {packed_product.data(), rows, columns, columns};
    }
    multiply(product, row_major<T, Acc>(a, batch, packed_a), row_major<T, Acc>(b, batch, packed_b));
    T* to = static_cast<T*>(out.data) + batch * out.strides[0];
    const T* add = beta == 0 ? nullptr : static_cast<const T*>(c.data) + batch * c.strides[0];
    for (std::int64_t i = 0; i < rows; ++i) {
      const Acc* const from = product.data + i * product.stride;
      T* const row = to + i * out.strides[1];
      if (add == nullptr && activation == Activation::none && out.strides[2] == 1) {
        for (std::int64_t j = 0; j < columns; ++j) {
          row[j] = from_accumulator<T>(static_cast<Acc>(alpha) * from[j]);
        }
        continue;
      }
      for (std::int64_t j = 0; j < columns; ++j) {
        Acc value = static_cast<Acc>(alpha) * from[j];
        if (add != nullptr) {
          value +=
              static_cast<Acc>(beta) * static_cast<Acc>(add[i * c.strides[1] + j * c.strides[2]]);
        }
        row[j * out.strides[2]] = from_accumulator<T>(activated(value, activation));
      }
    }
  }
}

}  // namespace

void gemm(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
          double alpha, double beta, Activation activation) {
  dispatch_stored(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      gemm_batches<T>(out, a, b, c, alpha, beta, activation);
    }
  });
}

}  // namespace gantry::kernels::host
