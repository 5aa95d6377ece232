#include "kernels/reductions/reduce.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

#include "tests/kernels/reductions/reduction_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;

std::vector<Array> run_arg(bool largest, const Array& in, int dim) {
  const Shape sizes = reduced_sizes(in.layout().sizes, 1u << dim);
  return run_everywhere(
      {Array(in.dtype(), contiguous(sizes)), Array(i64, contiguous(sizes)), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::arg_reduce(target, largest, t[0], t[1], t[2], dim);
      },
      in.layout().name);
}

// Finds the best elements along `dim` of an array of many ties.
void expect_first(const Array& in, int dim, bool largest) {
  const Shape& sizes = in.layout().sizes;
  const std::vector<Array> arrays = run_arg(largest, in, dim);
  const auto outputs = members(sizes, 1u << dim);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    std::int64_t best = 0;
    for (std::size_t k = 1; k < outputs[o].size(); ++k) {
      const double a = in.value(outputs[o][k]);
      const double b = in.value(outputs[o][static_cast<std::size_t>(best)]);
      if (largest ? a > b : a < b) best = static_cast<std::int64_t>(k);
    }
    const auto at = static_cast<std::int64_t>(o);
    ASSERT_EQ(arrays[1].get<std::int64_t>(at), best) << in.dtype() << sizes << dim;
    ASSERT_EQ(arrays[0].bits(at), in.bits(outputs[o][static_cast<std::size_t>(best)]));
  }
}

TEST(ArgReduceKernelTest, FindsTheFirstOfTheLargest) {
  for (const DType dtype : testing::kAllTypes) {
    for (const Shape& sizes : {Shape{4, 37}, Shape{37, 40}, Shape{2, 9000}, Shape{17000, 2}}) {
      for (int dim = 0; dim < 2; ++dim) {
        for (const bool largest : {true, false}) {
          Array in(dtype, sizes.product() < 2000 ? testing::transposed(sizes) : contiguous(sizes));
          fill_range(in, 5, 0, 9);
          expect_first(in, dim, largest);
        }
      }
    }
  }
}

// So many rows, or columns, that a GPU is full with a thread for each or with several.
TEST(ArgReduceKernelTest, LooksAtManyRowsAndColumns) {
  for (const Shape& sizes : many_short_rows()) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 5, 0, 9);
    expect_first(in, 1, true);
  }
  for (const Shape& sizes : {Shape{5, 205000}, Shape{9, 52001}, Shape{300, 26000}, Shape{130, 6501},
                             Shape{300, 6400}, Shape{1030, 1601}, Shape{4066, 72}, Shape{16390, 9},
                             Shape{16390, 40}, Shape{33000, 119}, Shape{7, 51204}}) {
    Array in(f32, contiguous(sizes));
    fill_range(in, 5, 0, 9);
    expect_first(in, 0, true);
    in.set(2 * sizes[1] + 7, NAN);
    EXPECT_EQ(run_arg(false, in, 0)[1].get<std::int64_t>(7), 2) << sizes;
    Array half(bf16, contiguous(sizes));
    fill_range(half, 5, 0, 9);
    expect_first(half, 0, false);
  }
}

// All elements equal but one: ties go to the first, and every position is looked at.
TEST(ArgReduceKernelTest, LooksAtEveryElement) {
  for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::i64, DType::bool_}) {
    for (const std::int64_t length :
         {1, 3, 4, 5, 255, 257, 1023, 1024, 1027, 4096, 8191, 8192, 8193, 16385, 40001}) {
      for (const Layout& layout : {contiguous({2, length}), testing::shifted({2, length}),
                                   testing::transposed({2, length})}) {
        for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{0}, length / 2, length - 1}) {
          for (const bool largest : {true, false}) {
            Array in(dtype, layout);
            fill_range(in, 1, largest ? 0 : 1, largest ? 0 : 1);
            if (at >= 0) {
              Array one(dtype, contiguous({1}));
              fill_range(one, 1, largest ? 1 : 0, largest ? 1 : 0);
              const auto bytes = static_cast<std::int64_t>(element_size(dtype));
              std::memcpy(in.bytes().data() + layout.position(length + at) * bytes,
                          one.bytes().data(), static_cast<std::size_t>(bytes));
            }
            const std::vector<Array> arrays = run_arg(largest, in, 1);
            ASSERT_EQ(arrays[1].get<std::int64_t>(0), 0) << dtype << layout.name << length;
            ASSERT_EQ(arrays[1].get<std::int64_t>(1), std::max<std::int64_t>(at, 0))
                << dtype << layout.name << length;
          }
        }
      }
    }
  }
}

// So long a fibre that a GPU's blocks share it in parts of several tiles.
TEST(ArgReduceKernelTest, SharesOutALongFibre) {
  const std::int64_t length = 4500001;
  for (const DType dtype : {DType::i8, DType::f32}) {
    const auto bytes = static_cast<std::int64_t>(element_size(dtype));
    for (const std::int64_t at : {std::int64_t{12287}, length - 1}) {
      Array in(dtype, contiguous({1, length}));
      Array one(dtype, contiguous({1}));
      fill_range(one, 1, 1, 1);
      // Twice: the first of the two is found.
      for (const std::int64_t place : {at, length - 1}) {
        std::memcpy(in.bytes().data() + place * bytes, one.bytes().data(),
                    static_cast<std::size_t>(bytes));
      }
      ASSERT_EQ(run_arg(true, in, 1)[1].get<std::int64_t>(0), at) << dtype;
    }
  }
}

TEST(ArgReduceKernelTest, InfinitiesAreNumbers) {
  for (const std::int64_t length : {5, 3000, 20000}) {
    for (const bool largest : {true, false}) {
      Array in(f32, contiguous({length}));
      for (std::int64_t i = 0; i < length; ++i) in.set(i, largest ? -INFINITY : INFINITY);
      EXPECT_EQ(run_arg(largest, in, 0)[1].get<std::int64_t>(0), 0);
    }
  }
}

TEST(ArgReduceKernelTest, FindsTheFirstNaN) {
  Array in(f32, contiguous({20000}));
  fill_range(in, 5, -1, 1);
  in.set(12345, NAN);
  in.set(400, NAN);
  in.set(3, static_cast<float>(INFINITY));
  for (const bool largest : {true, false}) {
    const std::vector<Array> arrays = run_arg(largest, in, 0);
    EXPECT_EQ(arrays[1].get<std::int64_t>(0), 400);
    EXPECT_TRUE(std::isnan(arrays[0].value(0)));
  }
}

TEST(ArgReduceKernelTest, BoolMemoryHasTwoValues) {
  const auto [loose, strict] = loose_and_strict_bools(contiguous({37, 40}));
  for (int dim = 0; dim < 2; ++dim) {
    for (const bool largest : {true, false}) {
      const std::vector<Array> got = run_arg(largest, loose, dim);
      const std::vector<Array> expected = run_arg(largest, strict, dim);
      for (std::int64_t i = 0; i < got[0].numel(); ++i) {
        ASSERT_EQ(got[0].bits(i), expected[0].bits(i)) << dim;
        ASSERT_EQ(got[1].get<std::int64_t>(i), expected[1].get<std::int64_t>(i)) << dim;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
