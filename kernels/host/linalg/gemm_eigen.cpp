#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/linalg/epilogue.hpp"
#include "kernels/host/linalg/matrix_product.hpp"
#include "kernels/host/linalg/paired_product.hpp"
#include "kernels/host/linalg/row_dots.hpp"
#include "kernels/linalg/gemm_plan.hpp"
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

template <class T>
StridedMatrix<T> matrix_of(const TensorRef& tensor, std::int64_t batch) {
  if (tensor.data == nullptr) return {};
  return {static_cast<T*>(tensor.data) + batch * tensor.strides[0], tensor.strides[1],
          tensor.strides[2]};
}

// A block of `matrix` as elements of type Acc: the matrix's memory if it has a layout of a view,
// else a copy in `packed`, in the order of the matrix's memory.
template <class Acc, class T>
MatrixView<const Acc> view_of(const StridedMatrix<const T>& matrix, const Block& block,
                              std::vector<Acc>& packed) {
  const T* data = matrix.block(block.first_row, block.first_column).data;
  const bool transposed = std::abs(matrix.row_stride) < std::abs(matrix.column_stride);
  const std::int64_t lines = transposed ? block.columns : block.rows;
  const std::int64_t length = transposed ? block.rows : block.columns;
  const std::int64_t line_stride = transposed ? matrix.column_stride : matrix.row_stride;
  const std::int64_t stride = transposed ? matrix.row_stride : matrix.column_stride;
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

// Elements of a block that stay in the second cache, and rows that a block has at least.
constexpr std::int64_t kBlockElements = 16384;
constexpr std::int64_t kLeastRows = 24;
constexpr std::int64_t kPartDepth = 1024;

// The products of matrices of one size, with memory for copies of operands.
template <class T>
class Gemm {
 public:
  using Acc = AccumulatorType<T>;

  Gemm(std::int64_t rows, std::int64_t columns, std::int64_t depth, const Epilogue<T>& epilogue)
      : rows_(rows), columns_(columns), depth_(depth), epilogue_(epilogue) {}

  void run(const StridedMatrix<T>& out, const StridedMatrix<const T>& a,
           const StridedMatrix<const T>& b, const StridedMatrix<const T>& c) {
    if (columns_ == 1 && (a.column_stride == 1 || depth_ == 1)) {
      multiply_vector(out, a, rows_, b.row_stride, b.data, c);
    } else if (rows_ == 1 && (b.row_stride == 1 || depth_ == 1)) {
      multiply_vector(out.transposed(), b.transposed(), columns_, a.column_stride, a.data,
                      c.transposed());
    } else {
      multiply_matrix(out, a, b, c);
    }
  }

 private:
  // One column: `count` rows of `matrix` times a vector.
  void multiply_vector(const StridedMatrix<T>& out, const StridedMatrix<const T>& matrix,
                       std::int64_t count, std::int64_t vector_stride, const T* vector,
                       const StridedMatrix<const T>& c) {
    constexpr std::int64_t kLanes = WideVector<Acc>::kLanes;
    packed_b_.assign(static_cast<std::size_t>((depth_ + kLanes - 1) / kLanes * kLanes), Acc(0));
    for (std::int64_t k = 0; k < depth_; ++k) {
      packed_b_[static_cast<std::size_t>(k)] = static_cast<Acc>(vector[k * vector_stride]);
    }
    product_.resize(static_cast<std::size_t>(count));
    const DenseRows<T> rows{matrix.data, count, matrix.row_stride, depth_};
    with_fma([&] { multiply_rows(product_.data(), rows, packed_b_.data()); });
    epilogue_.store(out.transposed(), c.transposed(), product_.data(), count, 1, count);
  }

  void multiply_matrix(const StridedMatrix<T>& out, const StridedMatrix<const T>& a,
                       const StridedMatrix<const T>& b, const StridedMatrix<const T>& c) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (rows_ > 1 && multiplies_pairs()) return multiply_in_pairs(out, a, b, c);
    }
    multiply_blocks(out, a, b, c);
  }

  // The product's rows in the memory of `out` if its elements are the accumulator's, and it is
  // not read; else null.
  Acc* product_memory(const StridedMatrix<T>& out, const StridedMatrix<const T>& c) const {
    if constexpr (std::is_same_v<T, Acc>) {
      if (c.data == nullptr && out.column_stride == 1 && out.row_stride >= columns_) {
        return out.data;
      }
    }
    return nullptr;
  }

  void multiply_blocks(const StridedMatrix<T>& out, const StridedMatrix<const T>& a,
                       const StridedMatrix<const T>& b, const StridedMatrix<const T>& c) {
    Acc* const memory = product_memory(out, c);
    // Elements of other types are converted in the cache, but for a matrix that each row needs.
    const bool is_converted = !std::is_same_v<T, Acc>;
    const std::int64_t height =
        is_converted ? std::max(kBlockElements / std::max(depth_, columns_), kLeastRows) : rows_;
    const std::int64_t width =
        is_converted && rows_ == 1 ? std::max(kBlockElements / depth_, kLeastRows) : columns_;
    if (memory == nullptr) {
      product_.resize(static_cast<std::size_t>(std::min(height, rows_) * columns_));
    }
    MatrixView<const Acc> right;
    if (width >= columns_) right = view_of(b, {0, 0, depth_, columns_}, packed_b_);
    for (std::int64_t row = 0; row < rows_; row += height) {
      const Block block{row, 0, std::min(height, rows_ - row), depth_};
      const auto left = view_of(a, block, packed_a_);
      const std::int64_t stride = memory == nullptr ? columns_ : out.row_stride;
      Acc* const product = memory == nullptr ? product_.data() : memory + row * stride;
      for (std::int64_t column = 0; column < columns_; column += width) {
        const std::int64_t part = std::min(width, columns_ - column);
        if (width < columns_) right = view_of(b, {0, column, depth_, part}, packed_b_);
        multiply({product + column, block.rows, part, stride}, left, right);
      }
      epilogue_.store(out.block(row, 0), c.block(row, 0), product, stride, block.rows, columns_);
    }
  }

  void multiply_in_pairs(const StridedMatrix<T>& out, const StridedMatrix<const T>& a,
                         const StridedMatrix<const T>& b, const StridedMatrix<const T>& c) {
    const std::int64_t height = std::max(kBlockElements / columns_, kLeastRows);
    // A `b` that few rows need is copied by parts that stay in the cache.
    const std::int64_t part = rows_ <= height ? std::min(kPartDepth, depth_) : depth_;
    pairs_.resize(static_cast<std::size_t>(PairedMatrix::size(part, columns_)));
    product_.resize(static_cast<std::size_t>(std::min(height, rows_) * columns_));
    for (std::int64_t k = 0; k < depth_; k += part) {
      const PairedMatrix right{pairs_.data(), std::min(part, depth_ - k), columns_};
      pair_rows(pairs_.data(), {bits_of(b.block(k, 0).data), b.row_stride, b.column_stride},
                right.depth, columns_);
      for (std::int64_t row = 0; row < rows_; row += height) {
        const std::int64_t rows = std::min(height, rows_ - row);
        const StridedMatrix<const T> left = with_dense_rows(a.block(row, k), rows, right.depth);
        multiply_pairs(product_.data(), columns_, bits_of(left.data), left.row_stride, rows, right,
                       k == 0);
        if (k + right.depth < depth_) continue;
        epilogue_.store(out.block(row, 0), c.block(row, 0), product_.data(), columns_, rows,
                        columns_);
      }
    }
  }

  static const std::uint16_t* bits_of(const T* data) {
    return reinterpret_cast<const std::uint16_t*>(data);
  }

  StridedMatrix<const T> with_dense_rows(const StridedMatrix<const T>& a, std::int64_t rows,
                                         std::int64_t depth) {
    if (a.column_stride == 1 || depth == 1) return a;
    dense_.resize(static_cast<std::size_t>(rows * depth));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t k = 0; k < depth; ++k) {
        dense_[static_cast<std::size_t>(i * depth + k)] =
            a.data[i * a.row_stride + k * a.column_stride];
      }
    }
    return {dense_.data(), depth, 1};
  }

  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::int64_t depth_;
  const Epilogue<T> epilogue_;
  std::vector<Acc> packed_a_;
  std::vector<Acc> packed_b_;
  std::vector<Acc> product_;
  std::vector<T> dense_;
  std::vector<std::uint32_t> pairs_;
};

}  // namespace

void gemm(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
          double alpha, double beta, Activation activation) {
  dispatch_stored(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      using Acc = AccumulatorType<T>;
      Gemm<T> product(out.sizes[1], out.sizes[2], a.sizes[2],
                      {static_cast<Acc>(alpha), static_cast<Acc>(beta), activation});
      for (std::int64_t batch = 0; batch < out.sizes[0]; ++batch) {
        product.run(matrix_of<T>(out, batch), matrix_of<const T>(a, batch),
                    matrix_of<const T>(b, batch),
                    beta == 0 ? StridedMatrix<const T>{} : matrix_of<const T>(c, batch));
      }
    }
  });
}

}  // namespace gantry::kernels::host
