#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/linalg/matrix_product.hpp"
#include "kernels/linalg/gemm_plan.hpp"
#include "kernels/math/math.hpp"
#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels::host {

namespace {

// A part of a matrix.
struct Block {
  std::int64_t first_row;
  std::int64_t first_column;
  std::int64_t rows;
  std::int64_t columns;
};

// A block of one matrix of `tensor` as elements of type Acc: the tensor's memory if it has a layout
// of a view, else a copy in `packed`, in the order of the tensor's memory.
template <class T, class Acc>
MatrixView<const Acc> view_of(const TensorRef& tensor, std::int64_t batch, const Block& block,
                              std::vector<Acc>& packed) {
  const T* data = static_cast<const T*>(tensor.data) + batch * tensor.strides[0] +
                  block.first_row * tensor.strides[1] + block.first_column * tensor.strides[2];
  const bool transposed = std::abs(tensor.strides[1]) < std::abs(tensor.strides[2]);
  const std::int64_t lines = transposed ? block.columns : block.rows;
  const std::int64_t length = transposed ? block.rows : block.columns;
  const std::int64_t line_stride = tensor.strides[transposed ? 2 : 1];
  const std::int64_t stride = tensor.strides[transposed ? 1 : 2];
  if constexpr (std::is_same_v<T, Acc>) {
    if ((stride == 1 || length == 1) && (line_stride >= length || lines == 1)) {
      return {data, block.rows, block.columns, line_stride, transposed};
    }
  }
  packed.resize(static_cast<std::size_t>(lines * length));
  with_fma([=, &packed] {
    for (std::int64_t i = 0; i < lines; ++i) {
      Acc* const to = packed.data() + i * length;
      const T* const from = data + i * line_stride;
      if (stride == 1) {
        for (std::int64_t j = 0; j < length; ++j) to[j] = static_cast<Acc>(from[j]);
      } else {
        for (std::int64_t j = 0; j < length; ++j) to[j] = static_cast<Acc>(from[j * stride]);
      }
    }
  });
  return {packed.data(), block.rows, block.columns, length, transposed};
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

// Elements of a block that stay in the second cache.
constexpr std::int64_t kBlockElements = 32768;

template <class T>
void gemm_batches(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                  double alpha, double beta, Activation activation) {
  using Acc = AccumulatorType<T>;
  std::vector<Acc> packed_a;
  std::vector<Acc> packed_b;
  std::vector<Acc> packed_product;
  const std::int64_t rows = out.sizes[1];
  const std::int64_t columns = out.sizes[2];
  const std::int64_t depth = a.sizes[2];
  for (std::int64_t batch = 0; batch < out.sizes[0]; ++batch) {
    MatrixView<Acc> product{nullptr, rows, columns, out.strides[1]};
    // `c` may be `out`.
    if (beta == 0) product.data = product_memory<T, Acc>(out, batch);
    if (product.data == nullptr) {
      packed_product.resize(static_cast<std::size_t>(rows * columns));
      product = {packed_product.data(), rows, columns, columns};
    }
    // A vector uses each element of the other operand once: its blocks are converted in the cache.
    const bool is_blocked = !std::is_same_v<T, Acc> && (rows == 1 || columns == 1);
    const std::int64_t fitting = std::max<std::int64_t>(kBlockElements / depth, 16);
    const std::int64_t step = is_blocked ? fitting : std::max(rows, columns);
    for (std::int64_t row = 0; row < rows; row += step) {
      const std::int64_t height = std::min(step, rows - row);
      const auto left = view_of<T>(a, batch, {row, 0, height, depth}, packed_a);
      for (std::int64_t column = 0; column < columns; column += step) {
        const std::int64_t width = std::min(step, columns - column);
        multiply({product.data + row * product.stride + column, height, width, product.stride},
                 left, view_of<T>(b, batch, {0, column, depth, width}, packed_b));
      }
    }
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
