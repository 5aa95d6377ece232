// Reductions of which one thread, or a few, have all elements of an output: few rows, columns of at
// most a chunk, and rows of a few elements.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/kernels/reductions/reduce_in_order.hpp"

namespace gantry::testing {
namespace {

using kernels::Reduction;
using kernels::Target;

template <class T>
using Sum = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;

// The operations whose kernels differ in their states, their ends and their repetitions.
template <class T>
void expect_operations(const Layout& layout, unsigned mask) {
  Array in(dtype_of<T>, layout);
  fill_range(in, 3, is_floating_point(dtype_of<T>) ? -2 : 0, 3);
  expect_in_order<T, Sum<T>>(Reduction::sum, in, mask);
  expect_in_order<T, T>(Reduction::min, in, mask);
  expect_in_order<T, bool>(Reduction::any, in, mask);
  expect_in_order<T, std::int64_t>(Reduction::count_nonzero, in, mask);
  if constexpr (is_floating_point(dtype_of<T>)) {
    expect_in_order<T, T>(Reduction::norm2, in, mask);
    expect_in_order<T, T>(Reduction::sum, in, mask, 7);
  }
}

template <class T>
void expect_few_rows() {
  for (const std::int64_t length : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17}) {
    for (const std::int64_t width : {1, 2, 5, 8, 16, 31, 1032}) {
      expect_operations<T>(contiguous({length, width}), 1);
    }
    expect_operations<T>(testing::shifted({length, 64}), 1);
    expect_operations<T>(testing::sliced({length, 64}), 1);
    expect_operations<T>(contiguous({3, length, 16}), 2);
    expect_operations<T>(contiguous({3, length, 7}), 2);
  }
}

TEST(ReduceColumnsKernelTest, ReducesFewRows) {
  expect_few_rows<float>();
  expect_few_rows<bfloat16>();
  expect_few_rows<double>();
  expect_few_rows<std::int8_t>();
  expect_few_rows<std::int64_t>();
}

template <class T>
void expect_tiny_rows() {
  for (const std::int64_t length : {1, 2, 3, 4, 5, 8, 9, 16, 17}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 7, 8, 9, 1023, 1024, 1025}) {
      expect_operations<T>(contiguous({rows, length}), 2);
    }
    expect_operations<T>(testing::shifted({64, length}), 2);
    expect_operations<T>(testing::sliced({64, length}), 2);
    expect_operations<T>(padded_rows({64, length}), 2);
  }
}

TEST(ReduceColumnsKernelTest, ReducesRowsOfAFewElements) {
  expect_tiny_rows<float>();
  expect_tiny_rows<float16>();
  expect_tiny_rows<double>();
  expect_tiny_rows<std::uint8_t>();
  expect_tiny_rows<bool>();
  expect_tiny_rows<std::int64_t>();
}

// Lengths around the accumulators of a part, and around a chunk's.
TEST(ReduceColumnsKernelTest, ReducesColumnsThatThreadsShare) {
  for (const std::int64_t length : {18, 31, 32, 33, 63, 64, 65, 127, 128}) {
    for (const std::int64_t width : {1, 4, 33, 128, 260}) {
      expect_operations<float>(contiguous({length, width}), 1);
      expect_operations<bfloat16>(contiguous({length, width}), 1);
      expect_operations<std::int64_t>(contiguous({length, width}), 1);
    }
  }
  const auto expect_sums = [](auto zero, const Shape& sizes, unsigned mask) {
    using T = decltype(zero);
    Array in(dtype_of<T>, contiguous(sizes));
    fill_range(in, 3, is_floating_point(dtype_of<T>) ? -2 : 0, 3);
    expect_in_order<T, Sum<T>>(Reduction::sum, in, mask);
    expect_in_order<T, T>(Reduction::max, in, mask);
  };
  // The fewest tiles of packs that fill a GPU, and one tile less.
  for (const std::int64_t length : {129, 256, 300}) {
    expect_sums(0.0f, {length, 25476}, 1);
    expect_sums(0.0f, {length, 25472}, 1);
    expect_sums(bfloat16(0.0f), {length, 25476}, 1);
    expect_sums(std::int64_t{0}, {length, 12738}, 1);
  }
  // As many without packs, of the last two dims, and as many that no thread shares one.
  expect_sums(0.0f, {129, 6369}, 1);
  expect_sums(0.0f, {300, 6367}, 1);
  expect_sums(bfloat16(0.0f), {21, 513, 305}, 2);
  expect_sums(0.0, {257, 6371}, 1);
  expect_sums(0.0f, {11, 50945}, 1);
  expect_sums(bfloat16(0.0f), {129, 50945}, 1);
  expect_sums(std::uint8_t{0}, {130, 50945}, 1);
  expect_sums(0.0f, {3000, 6401}, 1);
}

// Columns of a few rows without packs: a thread has four, two or one that lie apart, and the last
// threads have fewer.
TEST(ReduceColumnsKernelTest, ReducesFewRowsOfOddColumns) {
  for (const std::int64_t length : {2, 5, 8}) {
    for (const std::int64_t width : {255, 257, 511, 513, 516, 769, 1025, 1026, 2049, 5001}) {
      expect_operations<float>(contiguous({length, width}), 1);
      expect_operations<bfloat16>(contiguous({length, width}), 1);
      expect_operations<double>(contiguous({length, width}), 1);
    }
    expect_operations<std::uint8_t>(contiguous({length, 1025}), 1);
    expect_operations<std::int64_t>(contiguous({length, 1025}), 1);
    expect_operations<float>(contiguous({3, length, 1025}), 2);
  }
}

// So few columns that a thread has one accumulator of each, around a turn's elements and around
// chunks, and the most such columns and one more.
TEST(ReduceColumnsKernelTest, ReducesFewLongColumns) {
  for (const std::int64_t length : {129, 1151, 2047, 2049, 4097, 16383, 16385, 33000}) {
    for (const std::int64_t width : {2, 7, 9, 20}) {
      expect_operations<float>(contiguous({length, width}), 1);
      if (width == 9) expect_operations<bfloat16>(contiguous({length, width}), 1);
      if (width == 2) expect_operations<std::int64_t>(contiguous({length, width}), 1);
      if (width == 7) expect_operations<double>(contiguous({length, width}), 1);
    }
  }
  expect_operations<std::uint8_t>(contiguous({16500, 5}), 1);
  expect_operations<float>(testing::shifted({17000, 8}), 1);
  expect_operations<float>(testing::sliced({17000, 8}), 1);
  expect_operations<float>(contiguous({3, 17000, 4}), 2);
  expect_operations<float>(contiguous({5, 2100, 17}), 2);
  for (const std::int64_t width : {31, 32, 33}) {
    expect_operations<float>(contiguous({300, width}), 1);
    expect_operations<float>(contiguous({16385, width}), 1);
  }
  for (const std::int64_t width : {72, 257, 258}) {  // around 2^20 elements
    expect_operations<float>(contiguous({4066, width}), 1);
  }
  for (const std::int64_t matrices : {63, 64}) {
    expect_operations<float>(contiguous({matrices, 300, 32}), 2);
  }
}

// So many columns that a GPU is full with a thread per column or two.
TEST(ReduceColumnsKernelTest, ReducesFewRowsOfManyColumns) {
  for (const Layout& layout :
       {contiguous({17, 65536}), contiguous({100, 65536}), contiguous({100, 65540}),
        contiguous({128, 65538}), contiguous({300, 65536}), testing::shifted({64, 65539})}) {
    Array in(bf16, layout);
    fill_range(in, 3, -1, 1);
    expect_in_order<bfloat16, bfloat16>(Reduction::sum, in, 1);
  }
  Array batched(f32, contiguous({130, 70, 512}));
  fill_range(batched, 3, -1, 1);
  expect_in_order<float, float>(Reduction::sum, batched, 2);
  expect_in_order<float, float>(Reduction::min, batched, 2);
}

// Outputs that are no packs: other strides, other alignments and other dtypes.
TEST(ReduceColumnsKernelTest, WritesOutputsOfEveryLayoutAndType) {
  const auto expect = [](const Shape& sizes, unsigned mask) {
    Array in(bf16, contiguous(sizes));
    fill_range(in, 2, -1, 1);
    const Shape reduced = reduced_sizes(sizes, mask);
    for (const DType dtype : {bf16, f16, f32}) {
      const auto dense = run_reduce(Reduction::sum, dtype, in, mask);
      for (const Layout& layout : testing::output_layouts(reduced)) {
        const std::vector<Array> arrays = run_everywhere(
            {Array(dtype, layout), in},
            [](const Target& target, const std::vector<TensorRef>& t) {
              kernels::reduce(target, Reduction::sum, t[0], t[1]);
            },
            layout.name);
        for (std::int64_t i = 0; i < reduced.product(); ++i) {
          ASSERT_EQ(arrays[0].bits(i), dense[0].bits(i)) << layout.name << sizes;
        }
      }
    }
  };
  for (const std::int64_t length : {3, 12, 40}) {
    expect({length, 24, 16}, 1);
    expect({24, length, 16}, 2);
  }
  for (const std::int64_t length : {2, 3, 4, 7}) expect({24, 16, length}, 4);
}

// The ends of ranges: NaN, infinities, and sums that are repeated, among results that are not.
TEST(ReduceColumnsKernelTest, RepeatsTheResultsOfAPackThatAreNotFinite) {
  const float large = std::numeric_limits<float>::max();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto expect = [&](const Shape& sizes, unsigned mask) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 2, -1, 1);
    const auto outputs = members(sizes, mask);
    std::vector<double> expected;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const auto set = [&](std::size_t k, float value) { in.set(outputs[o][k], value); };
      const std::size_t last = outputs[o].size() - 1;
      for (std::size_t k = 0; k <= last; ++k) set(k, 0);
      double sum = 0;
      if (o % 5 == 1) {  // left to right the sum stays finite; in the tree it does not
        set(0, large);
        set(1, -large);
        set(last - 1, last > 2 ? large : -large);
        set(last, last > 2 ? -large : 0);
      } else if (o % 5 == 2) {
        set(last, sum = infinity);
      } else if (o % 5 == 3) {
        set(0, infinity);
        set(last, -infinity);
        sum = std::nan("");
      } else if (o % 5 == 4) {
        set(0, sum = -0.0);
        for (std::size_t k = 1; k <= last; ++k) set(k, -0.0f);
      }
      expected.push_back(sum);
    }
    const auto arrays = run_reduce(Reduction::sum, f32, in, mask);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const double got = arrays[0].value(static_cast<std::int64_t>(o));
      ASSERT_TRUE(std::isnan(expected[o]) ? std::isnan(got) : got == expected[o])
          << sizes << " output " << o << ": expected " << expected[o] << ", but got " << got;
      ASSERT_EQ(std::signbit(got) && !std::isnan(got), std::signbit(expected[o])) << sizes << o;
    }
  };
  for (const std::int64_t length : {4, 6, 12, 40}) {
    expect({length, 64}, 1);
    expect({length, 63}, 1);
  }
  for (const std::int64_t length : {5, 300}) expect({length, 1027}, 1);
  for (const std::int64_t length : {300, 16500}) expect({length, 13}, 1);
  expect({64, 4}, 2);
  expect({65, 4}, 2);
  expect({63, 7}, 2);
}

}  // namespace
}  // namespace gantry::testing
