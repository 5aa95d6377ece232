#include "kernels/linalg/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

// Layouts of an operand [batch, rows, columns].
std::vector<Layout> operand_layouts(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  const Shape sizes = {batch, rows, columns};
  Layout column_major{"column-major", sizes, {rows * columns, 1, rows}, 0, batch * rows * columns};
  Layout padded{"padded rows",
                sizes,
                {rows * (columns + 3), columns + 3, 1},
                2,
                batch * rows * (columns + 3) + 2};
  Layout shared{"one matrix for all batches", sizes, {0, columns, 1}, 0, rows * columns};
  Layout scattered{
      "neither", sizes, {rows * columns * 6, columns * 3, 2}, 0, batch * rows * columns * 6};
  return {contiguous(sizes), column_major, padded, shared, scattered};
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1.6e-2;
    case DType::f32:
      return 1e-5;
    default:
      return 1e-13;
  }
}

using Runner = void (*)(std::vector<Array>&, const testing::KernelCall&);

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  __builtin_unreachable();
}

// `rounds_once`: the product is not rounded to the dtype before the addend is added.
void expect_product(const Array& a, const Array& b, const Array& c, double alpha, double beta,
                    Activation activation = Activation::none, bool rounds_once = true) {
  const std::int64_t batch = a.layout().sizes[0];
  const std::int64_t m = a.layout().sizes[1];
  const std::int64_t k = a.layout().sizes[2];
  const std::int64_t n = b.layout().sizes[2];
  for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
    std::vector<Array> arrays{Array(a.dtype(), contiguous({batch, m, n})), a, b, c};
    run(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
      kernels::gemm(target, t[0], t[1], t[2], beta == 0 ? TensorRef{} : t[3], alpha, beta,
                    activation);
    });
    for (std::int64_t i = 0; i < batch * m * n; ++i) {
      const std::int64_t matrix = i / (m * n);
      const std::int64_t row = i / n % m;
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t q = 0; q < k; ++q) {
        const double product =
            a.value((matrix * m + row) * k + q) * b.value((matrix * k + q) * n + i % n);
        sum += product;
        magnitude += std::abs(product);
      }
      double expected = alpha * sum;
      const double addend = beta != 0 ? beta * c.value(i) : 0;
      const double rounded = rounds_once ? 0 : std::abs(expected);
      expected += addend;
      const double linear = std::max(std::abs(expected), rounded);
      expected = activated(expected, activation);
      // The rounding of the accumulation and of the result.
      const double accumulation = a.dtype() == f64 ? 1e-14 : 1e-6;
      const double allowed =
          std::abs(alpha) * magnitude * accumulation + tolerance(a.dtype()) * linear + 1e-12;
      ASSERT_NEAR(arrays[0].value(i), expected, allowed)
          << a.dtype() << " " << m << "x" << k << " (" << a.layout().name << ") times " << k << "x"
          << n << " (" << b.layout().name << ") at " << i;
    }
  }
}

TEST(GemmKernelTest, MultipliesOperandsInEveryLayout) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const Layout& left : operand_layouts(2, 5, 7)) {
      for (const Layout& right : operand_layouts(2, 7, 3)) {
        Array a(dtype, left);
        Array b(dtype, right);
        Array c(dtype, contiguous({2, 5, 3}));
        fill_range(a, 1, -1, 1);
        fill_range(b, 2, -1, 1);
        fill_range(c, 3, -1, 1);
        expect_product(a, b, c, 1, 0);
      }
    }
  }
}

TEST(GemmKernelTest, DoesNotReadOldElements) {
  for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
    for (const Shape& sizes : {Shape{2, 5, 3}, Shape{1, 40, 33}, Shape{1, 1, 9}, Shape{3, 9, 1}}) {
      Array a(f32, contiguous({sizes[0], sizes[1], 7}));
      Array b(f32, contiguous({sizes[0], 7, sizes[2]}));
      fill_range(a, 1, -1, 1);
      fill_range(b, 2, -1, 1);
      const auto product_over = [&](float old) {
        Array out(f32, contiguous(sizes));
        for (std::int64_t i = 0; i < out.numel(); ++i) out.set<float>(i, old);
        std::vector<Array> arrays{std::move(out), a, b};
        run(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::gemm(target, t[0], t[1], t[2], TensorRef{}, -1.5, 0, Activation::none);
        });
        return arrays[0];
      };
      const Array expected = product_over(0);
      const Array result = product_over(NAN);
      for (std::int64_t i = 0; i < result.numel(); ++i) {
        ASSERT_EQ(result.bits(i), expected.bits(i)) << sizes << " at " << i;
      }
    }
  }
}

TEST(GemmKernelTest, NaNIsCanonicalOnTheHost) {
  Array a(f32, contiguous({1, 3, 4}));
  Array b(f32, contiguous({1, 4, 5}));
  fill_range(a, 1, -1, 1);
  fill_range(b, 2, -1, 1);
  a.set<float>(5, -std::numeric_limits<float>::quiet_NaN());
  std::vector<Array> arrays{Array(f32, contiguous({1, 3, 5})), a, b};
  testing::run_on_cpu(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
    kernels::gemm(target, t[0], t[1], t[2], TensorRef{}, 1, 0, Activation::none);
  });
  for (std::int64_t i = 0; i < 15; ++i) {
    if (i / 5 == 1) {
      EXPECT_EQ(arrays[0].bits(i), 0x7fc00000U) << i;
    } else {
      EXPECT_FALSE(std::isnan(arrays[0].value(i))) << i;
    }
  }
}

TEST(GemmKernelTest, HandlesOddSizes) {
  const std::int64_t cases[][4] = {{1, 1, 1, 1},  {1, 1, 9, 1},   {1, 9, 1, 1},
                                   {1, 1, 1, 9},  {3, 16, 16, 8}, {1, 33, 130, 65},
                                   {5, 2, 31, 1}, {1, 64, 64, 64}};
  for (const auto& [batch, m, k, n] : cases) {
    for (const DType dtype : testing::kFloatingTypes) {
      Array a(dtype, contiguous({batch, m, k}));
      Array b(dtype, contiguous({batch, k, n}));
      Array c(dtype, contiguous({batch, m, n}));
      fill_range(a, 1, -1, 1);
      fill_range(b, 2, -1, 1);
      fill_range(c, 3, -1, 1);
      expect_product(a, b, c, 1, 0);
      expect_product(a, b, c, -1.5, 0.5);
    }
  }
}

// Sizes beside the widths of vectors, tiles, panels and parts, in every pair of layouts.
TEST(GemmKernelTest, HandlesSizesAtTheEdgesOfTiles) {
  std::mt19937 draw(20261130);
  const auto one_of = [&draw](std::initializer_list<std::int64_t> sizes) {
    return *(sizes.begin() + draw() % sizes.size());
  };
  constexpr std::int64_t kMostProducts = 300'000;
  for (int round = 0; round < 60; ++round) {
    std::int64_t m, k, n;
    do {
      m = one_of({1, 1, 2, 5, 6, 7, 16, 17, 24, 25, 40, 300, 5000});
      k = one_of({1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 64, 1023, 1024, 1025, 2050, 20000});
      n = one_of({1, 1, 2, 15, 16, 17, 32, 63, 64, 65, 130, 700});
    } while (m * k * n > kMostProducts);
    const DType dtype = testing::kFloatingTypes[draw() % std::size(testing::kFloatingTypes)];
    const std::vector<Layout> left = operand_layouts(1, m, k);
    const std::vector<Layout> right = operand_layouts(1, k, n);
    Array a(dtype, left[draw() % left.size()]);
    Array b(dtype, right[draw() % right.size()]);
    Array c(dtype, contiguous({1, m, n}));
    fill_range(a, round, -1, 1);
    fill_range(b, round + 1, -1, 1);
    fill_range(c, round + 2, -1, 1);
    ASSERT_NO_FATAL_FAILURE(expect_product(a, b, c, 1, 0));
    ASSERT_NO_FATAL_FAILURE(expect_product(a, b, c, -0.5, 2));
  }
}

// Depths of several parts, for few rows and for more than a block has.
TEST(GemmKernelTest, AddsThePartsOfALongDepth) {
  const std::int64_t cases[][3] = {{7, 2050, 65}, {40, 1100, 500}};
  for (const auto& [m, k, n] : cases) {
    for (const DType dtype : {bf16, f16}) {
      Array a(dtype, contiguous({1, m, k}));
      Array b(dtype, contiguous({1, k, n}));
      fill_range(a, 1, -1, 1);
      fill_range(b, 2, -1, 1);
      expect_product(a, b, Array(dtype, contiguous({1, m, n})), 1, 0);
    }
  }
}

void set_element(Array& array, std::int64_t i, float value) {
  switch (array.dtype()) {
    case DType::f16:
      return array.set(i, float16(value));
    case DType::bf16:
      return array.set(i, bfloat16(value));
    case DType::f64:
      return array.set(i, static_cast<double>(value));
    default:
      return array.set(i, value);
  }
}

// Short rows are read as whole vectors, which end in the rows behind.
TEST(GemmKernelTest, ANaNStaysInItsRow) {
  for (const DType dtype : testing::kFloatingTypes) {
    for (const std::int64_t depth : {1, 3, 7, 15, 17, 31}) {
      for (const std::int64_t columns : {1, 3}) {
        constexpr std::int64_t kRows = 40;
        Array a(dtype, contiguous({1, kRows, depth}));
        Array b(dtype, contiguous({1, depth, columns}));
        fill_range(a, 1, -1, 1);
        fill_range(b, 2, -1, 1);
        for (std::int64_t row = 0; row < kRows; row += 3) {
          const double bad = row % 2 == 0 ? NAN : INFINITY;
          set_element(a, row * depth + row % depth, static_cast<float>(bad));
        }
        for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
          std::vector<Array> arrays{Array(dtype, contiguous({1, kRows, columns})), a, b};
          run(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::gemm(target, t[0], t[1], t[2], TensorRef{}, 1, 0, Activation::none);
          });
          for (std::int64_t i = 0; i < kRows * columns; ++i) {
            ASSERT_EQ(std::isfinite(arrays[0].value(i)), i / columns % 3 != 0)
                << dtype << " rows of " << depth << " at " << i;
          }
        }
      }
    }
  }
}

TEST(GemmKernelTest, AddsAnAddendOfAnyLayout) {
  Array a(f32, contiguous({2, 5, 7}));
  Array b(f32, contiguous({2, 7, 3}));
  fill_range(a, 1, -1, 1);
  fill_range(b, 2, -1, 1);
  for (const Layout& layout : operand_layouts(2, 5, 3)) {
    Array c(f32, layout);
    fill_range(c, 3, -1, 1);
    expect_product(a, b, c, 2, 1);
    expect_product(a, b, c, 0.25, -3);
  }
}

TEST(GemmKernelTest, AppliesAnActivation) {
  for (const Activation activation : {Activation::relu, Activation::gelu_tanh}) {
    for (const DType dtype : testing::kFloatingTypes) {
      Array a(dtype, contiguous({1, 16, 8}));
      Array b(dtype, contiguous({1, 8, 24}));
      Array c(dtype, contiguous({1, 16, 24}));
      fill_range(a, 1, -1, 1);
      fill_range(b, 2, -1, 1);
      fill_range(c, 3, -1, 1);
      expect_product(a, b, c, 1, 0, activation);
      expect_product(a, b, c, 2, -0.5, activation);
      expect_product(a, b, c, 0, 1, activation);
      Array batched_a(dtype, contiguous({3, 5, 7}));
      Array batched_b(dtype, contiguous({3, 7, 4}));
      fill_range(batched_a, 4, -1, 1);
      fill_range(batched_b, 5, -1, 1);
      expect_product(batched_a, batched_b, Array(dtype, contiguous({3, 5, 4})), 1, 0, activation);
    }
  }
}

// Rows that a GPU adds in the product's kernel, and rows that it does not: misaligned ones, others
// than one dense row, and rows of products of one row or column.
TEST(GemmKernelTest, AddsOneRowToAll) {
  struct Case {
    std::int64_t m, n;
    Layout row;
    bool is_bias = true;  // of an epilogue; cuBLASLt may round the product before other addends
  };
  const Case cases[] = {
      {16, 24, {"one row", {1, 16, 24}, {0, 0, 1}, 0, 24}},
      {16, 24, {"one row, misaligned", {1, 16, 24}, {0, 0, 1}, 1, 25}},
      {16, 24, {"one row with steps", {1, 16, 24}, {0, 0, 2}, 0, 48}},
      {16, 24, {"one column", {1, 16, 24}, {0, 1, 0}, 0, 16}, false},
      {16, 24, {"one number", {1, 16, 24}, {0, 0, 0}, 0, 1}},
      {1, 24, {"row of one row", {1, 1, 24}, {0, 0, 1}, 0, 24}, false},
      {16, 1, {"row of one column", {1, 16, 1}, {0, 0, 1}, 0, 1}, false},
      {7, 9, {"one row of odd length", {1, 7, 9}, {0, 0, 1}, 0, 9}},
  };
  for (const auto& [m, n, row, is_bias] : cases) {
    for (const DType dtype : testing::kFloatingTypes) {
      for (const Activation activation :
           {Activation::none, Activation::relu, Activation::gelu_tanh}) {
        SCOPED_TRACE(row.name);
        Array a(dtype, contiguous({1, m, 8}));
        Array b(dtype, contiguous({1, 8, n}));
        Array c(dtype, row);
        fill_range(a, 1, -1, 1);
        fill_range(b, 2, -1, 1);
        fill_range(c, 3, -1, 1);
        expect_product(a, b, c, 1, 1, activation, is_bias);
        expect_product(a, b, c, -2, 1, activation, is_bias);
        expect_product(a, b, c, 1, 0.5, activation, false);
      }
    }
  }
}

// One problem serves several threads, each with its own row.
TEST(GemmKernelTest, ThreadsAddTheirOwnRows) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      Array a(f32, contiguous({1, 16, 8}));
      Array b(f32, contiguous({1, 8, 24}));
      Array c(f32, {"one row", {1, 16, 24}, {0, 0, 1}, 0, 24});
      fill_range(a, 1, -1, 1);
      fill_range(b, 2, -1, 1);
      fill_range(c, static_cast<std::uint64_t>(number + 3), -100, 100);
      for (int i = 0; i < 20; ++i) expect_product(a, b, c, 1, 1, Activation::relu);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GemmKernelTest, WithoutInnerDimOrAlphaScalesTheAddend) {
  Array a(f32, contiguous({1, 2, 0}));
  Array b(f32, contiguous({1, 0, 3}));
  Array c(f32, contiguous({1, 2, 3}));
  fill_range(c, 3, -1, 1);
  expect_product(a, b, c, 1, 2);
  expect_product(a, b, c, 1, 1);
  expect_product(a, b, c, 1, 0);
  Array nan_a(f32, contiguous({1, 2, 1}));
  Array some_b(f32, contiguous({1, 1, 3}));
  fill_range(some_b, 1, -1, 1);
  expect_product(nan_a, some_b, c, 0, 2);
}

TEST(GemmKernelTest, MayAddInPlace) {
  Array a(f32, contiguous({1, 4, 4}));
  Array b(f32, contiguous({1, 4, 4}));
  Array out(f32, contiguous({1, 4, 4}));
  fill_range(a, 1, -1, 1);
  fill_range(b, 2, -1, 1);
  fill_range(out, 3, -1, 1);
  for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
    std::vector<Array> separate{Array(f32, contiguous({1, 4, 4})), a, b, out};
    std::vector<Array> in_place{out, a, b};
    run(separate, [](const Target& target, const std::vector<TensorRef>& t) {
      kernels::gemm(target, t[0], t[1], t[2], t[3], 1, 1);
    });
    run(in_place, [](const Target& target, const std::vector<TensorRef>& t) {
      kernels::gemm(target, t[0], t[1], t[2], t[0], 1, 1);
    });
    EXPECT_EQ(separate[0].bytes(), in_place[0].bytes());
  }
}

TEST(GemmKernelTest, SixteenBitTypesAccumulateInF32) {
  Array a(f16, contiguous({1, 1, 4096}));
  Array b(f16, contiguous({1, 4096, 1}));
  for (std::int64_t i = 0; i < 4096; ++i) {
    a.set(i, float16(1.0f));
    b.set(i, float16(1.0f));
  }
  expect_product(a, b, Array(f16, contiguous({1, 1, 1})), 1, 0);
}

}  // namespace
}  // namespace gantry::testing
