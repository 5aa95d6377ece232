#include "kernels/reductions/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "tests/kernels/reductions/reduce_in_order.hpp"

namespace gantry::testing {
namespace {

using kernels::Reduction;
using kernels::Target;

struct Case {
  Shape sizes;
  unsigned mask;
};

const Case kCases[] = {{{1}, 1},
                       {{5}, 1},
                       {{127}, 1},
                       {{129}, 1},
                       {{1025}, 1},
                       {{40001}, 1},
                       {{17, 300}, 2},
                       {{17, 300}, 1},
                       {{3, 33000}, 2},
                       {{17000, 3}, 1},
                       {{9, 70}, 1},
                       {{40, 33}, 1},
                       {{4, 5, 6}, 0b101},
                       {{4, 50, 6}, 0b010},
                       {{2, 3, 4, 50}, 0b0101},
                       {{6, 7}, 0b11},
                       {{2, 3}, 0},
                       {{}, 0},
                       {{300, 2, 70}, 0b101}};

TEST(ReduceKernelTest, SumsInTheDocumentedOrderWhateverTheLayout) {
  for (const Case& c : kCases) {
    for (const Layout& layout : testing::input_layouts(c.sizes)) {
      Array in(f32, layout);
      fill_range(in, 3, -1, 1);
      expect_in_order<float, float>(Reduction::sum, in, c.mask);
    }
  }
}

// Lengths around the vectors, groups, batches and chunks of the kernels.
constexpr std::int64_t kLengths[] = {
    1,    2,    3,    4,    5,    7,    8,    9,     15,    16,    17,    31,    32,   33,   63,
    64,   65,   127,  128,  129,  131,  255,  256,   259,   511,   512,   513,   1023, 1024, 1025,
    1027, 4095, 4097, 8191, 8192, 8193, 8707, 16383, 16384, 16385, 16513, 32768, 33030};

template <class T>
void expect_every_length() {
  for (const std::int64_t length : kLengths) {
    for (const Layout& layout : {contiguous({3, length}), testing::shifted({3, length}),
                                 testing::transposed({3, length}), contiguous({2, 2, length})}) {
      Array in(dtype_of<T>, layout);
      fill_range(in, static_cast<std::uint32_t>(length), is_floating_point(dtype_of<T>) ? -2 : 0,
                 2);
      using Sum = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;
      const unsigned mask = layout.sizes.size() == 3 ? 4 : 2;
      expect_in_order<T, Sum>(Reduction::sum, in, mask);
      expect_in_order<T, T>(Reduction::min, in, mask);
    }
  }
}

TEST(ReduceKernelTest, ReducesRowsOfEveryLength) {
  expect_every_length<float>();
  expect_every_length<bfloat16>();
  expect_every_length<std::int8_t>();
  expect_every_length<double>();
}

TEST(ReduceKernelTest, ReducesColumnsOfEveryLengthAndWidth) {
  const auto expect = [](auto zero, std::int64_t length, std::int64_t width) {
    using T = decltype(zero);
    using Sum = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;
    for (const Layout& layout : {contiguous({length, width}), testing::shifted({length, width})}) {
      Array in(dtype_of<T>, layout);
      fill_range(in, static_cast<std::uint32_t>(length), 0, 2);
      expect_in_order<T, Sum>(Reduction::sum, in, 1);
      expect_in_order<T, T>(Reduction::max, in, 1);
    }
    // Columns of the last two dims: packs must not reach into the next row of outputs.
    Array batched(dtype_of<T>, contiguous({2, length, width}));
    fill_range(batched, 5, 0, 2);
    expect_in_order<T, Sum>(Reduction::sum, batched, 2);
  };
  for (const std::int64_t length : {2, 16, 17, 31, 129, 255, 256, 300, 16385}) {
    for (const std::int64_t width : {2, 4, 8, 12, 16, 31, 32, 33, 64, 72, 130}) {
      if (length * width > 700000) continue;
      expect(0.0f, length, width);
      expect(bfloat16(0.0f), length, width);
      expect(std::uint8_t(0), length, width);
      expect(0.0, length, width);
    }
  }
  // As many columns of 16-bit elements as fill a GPU with the wider tiles, and a tile cut short.
  for (const std::int64_t width : {16384, 16392, 16328}) expect(bfloat16(0.0f), 33, width);
}

// So many rows that a GPU is full with a warp per row or chunk.
TEST(ReduceKernelTest, ReducesManyRows) {
  for (const Shape& sizes : {Shape{1030, 1100}, Shape{520, 16386}, Shape{5000, 36}}) {
    Array in(f16, contiguous(sizes));
    fill_range(in, 3, -1, 1);
    expect_in_order<float16, float16>(Reduction::sum, in, 2);
  }
}

TEST(ReduceKernelTest, ReducesTilesOfShortRows) {
  for (const Shape& sizes : many_short_rows()) {
    for (const Layout& layout : {contiguous(sizes), padded_rows(sizes)}) {
      Array in(f32, layout);
      fill_range(in, 3, -1, 1);
      expect_in_order<float, float>(Reduction::sum, in, 2);
      Array half(bf16, layout);
      fill_range(half, 5, -1, 1);
      expect_in_order<bfloat16, bfloat16>(Reduction::sum, half, 2);
    }
    Array wide(f64, contiguous(sizes));
    fill_range(wide, 3, -1, 1);
    expect_in_order<double, double>(Reduction::min, wide, 2);
    Array narrow(u8, contiguous(sizes));
    fill_range(narrow, 3, 0, 200);
    expect_in_order<std::uint8_t, std::int64_t>(Reduction::sum, narrow, 2);
  }
  const auto expect_integers = [](auto zero) {
    using T = decltype(zero);
    for (const Shape& sizes : {Shape{34000, 9}, Shape{17000, 64}}) {
      Array in(dtype_of<T>, contiguous(sizes));
      fill_range(in, 3, -100, 100);
      expect_in_order<T, std::int64_t>(Reduction::sum, in, 2);
      expect_in_order<T, T>(Reduction::max, in, 2);
    }
  };
  expect_integers(std::int8_t{});
  expect_integers(std::int16_t{});
  expect_integers(std::int32_t{});
  expect_integers(std::int64_t{});
  Array half(f16, contiguous({17000, 64}));
  fill_range(half, 3, -1, 1);
  expect_in_order<float16, float16>(Reduction::sum, half, 2);
}

// More chunks than a GPU has blocks at a time.
TEST(ReduceKernelTest, ReducesManyChunks) {
  const std::int64_t length = 16384 * 6400 + 100;
  Array in(DType::u8, contiguous({length}));
  std::fill(in.bytes().begin(), in.bytes().end(), std::uint8_t{1});
  in.bytes()[static_cast<std::size_t>(length - 1)] = 3;
  const std::vector<Array> arrays = run_everywhere(
      {Array(i64, contiguous({1})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::reduce(target, Reduction::sum, t[0], t[1], 1);
      },
      "u8");
  EXPECT_EQ(arrays[0].get<std::int64_t>(0), length + 2);
}

// So many chunks that a thread of the last block has more results than it loads at once.
TEST(ReduceKernelTest, MergesManyChunks) {
  const Layout layout = contiguous({16384 * 2100 + 3});
  Array in(f32, layout);
  fill_range(in, 5, -1, 1);
  for (const Reduction op : {Reduction::sum, Reduction::max}) {
    (void)run_everywhere(
        {Array(f32, contiguous({1})), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::reduce(target, op, t[0], t[1], 1);
        },
        "f32");
  }
}

TEST(ReduceKernelTest, AnyAndAllLookAtEveryElement) {
  for (const Shape& sizes : {Shape{3, 40}, Shape{2, 40000}, Shape{40000, 3}}) {
    const unsigned mask = sizes[0] > 3 ? 1 : 2;
    for (const std::int64_t at : {std::int64_t{0}, sizes.product() / 2, sizes.product() - 1}) {
      Array in(f32, contiguous(sizes));
      in.set(at, 0.5f);
      expect_in_order<float, bool>(Reduction::any, in, mask);
      for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, 1.0f);
      in.set(at, -0.0f);
      expect_in_order<float, bool>(Reduction::all, in, mask);
      expect_in_order<float, std::int64_t>(Reduction::count_nonzero, in, mask);
    }
  }
}

template <class T>
void expect_every_operation() {
  for (const Shape& sizes : {Shape{3, 300}, Shape{20001}, Shape{140, 40}, Shape{300, 7}}) {
    for (const unsigned mask : {1u, 2u}) {
      if (sizes.size() == 1 && mask == 2) continue;
      Array in(dtype_of<T>, contiguous(sizes));
      fill_range(in, 7, is_floating_point(dtype_of<T>) ? -2 : 0, 3);
      using Sum = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;
      expect_in_order<T, Sum>(Reduction::sum, in, mask);
      expect_in_order<T, Sum>(Reduction::prod, in, mask);
      expect_in_order<T, T>(Reduction::min, in, mask);
      expect_in_order<T, T>(Reduction::max, in, mask);
      expect_in_order<T, bool>(Reduction::any, in, mask);
      expect_in_order<T, bool>(Reduction::all, in, mask);
      expect_in_order<T, std::int64_t>(Reduction::count_nonzero, in, mask);
      if constexpr (is_floating_point(dtype_of<T>)) {
        expect_in_order<T, T>(Reduction::norm2, in, mask);
        expect_in_order<T, T>(Reduction::sum_abs, in, mask);
        expect_in_order<T, T>(Reduction::sum, in, mask, 7);
      }
    }
  }
}

TEST(ReduceKernelTest, ComputesEveryOperationOfEveryType) {
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [](auto tag) { expect_every_operation<typename decltype(tag)::type>(); });
  }
}

TEST(ReduceKernelTest, AccumulatesSixteenBitTypesInF32AndRoundsOnce) {
  Array in(f16, contiguous({4096}));
  for (std::int64_t i = 0; i < 4096; ++i) in.set(i, float16(1.0f));
  // In f16 the sum would stop at 2048.
  EXPECT_EQ(run_reduce(Reduction::sum, f16, in, 1)[0].value(0), 4096);
  EXPECT_EQ(run_reduce(Reduction::sum, f32, in, 1)[0].value(0), 4096);
}

TEST(ReduceKernelTest, ConvertsToTheTypeOfTheResult) {
  Array in(i32, contiguous({2, 1000}));
  fill_range(in, 3, -1000, 1000);
  const auto sums = run_reduce(Reduction::sum, f64, in, 2);
  for (std::int64_t row = 0; row < 2; ++row) {
    double expected = 0;
    for (std::int64_t i = 0; i < 1000; ++i) expected += in.get<std::int32_t>(row * 1000 + i);
    EXPECT_EQ(sums[0].get<double>(row), expected);
  }
  Array floats(f32, contiguous({100}));
  for (std::int64_t i = 0; i < 100; ++i) floats.set(i, 16777217.0f);
  EXPECT_EQ(run_reduce(Reduction::sum, f64, floats, 1)[0].get<double>(0), 1677721600.0);
}

TEST(ReduceKernelTest, IntegersWrap) {
  Array in(i64, contiguous({3}));
  in.set(0, std::numeric_limits<std::int64_t>::max());
  in.set<std::int64_t>(1, 1);
  in.set<std::int64_t>(2, 1);
  EXPECT_EQ(run_reduce(Reduction::sum, i64, in, 1)[0].get<std::int64_t>(0),
            std::numeric_limits<std::int64_t>::min() + 1);
}

TEST(ReduceKernelTest, NaNPropagatesAndIsCanonical) {
  for (const Reduction op : {Reduction::sum, Reduction::min, Reduction::max, Reduction::prod}) {
    for (const std::int64_t at : {0, 77, 999}) {
      Array in(f32, contiguous({1000}));
      fill_range(in, 1, -1, 1);
      in.set(at, -std::numeric_limits<float>::quiet_NaN());
      EXPECT_EQ(run_reduce(op, f32, in, 1)[0].bits(0), 0x7fc00000u);
    }
  }
  Array in(f32, contiguous({2}));
  in.set(0, std::numeric_limits<float>::infinity());
  in.set(1, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(run_reduce(Reduction::sum, f32, in, 1)[0].bits(0), 0x7fc00000u);
}

TEST(ReduceKernelTest, KeepsTheSignOfZero) {
  Array in(f32, contiguous({200}));
  for (std::int64_t i = 0; i < 200; ++i) in.set(i, -0.0f);
  EXPECT_EQ(run_reduce(Reduction::sum, f32, in, 1)[0].bits(0), 0x80000000u);
  EXPECT_EQ(run_reduce(Reduction::sum_abs, f32, in, 1)[0].bits(0), 0u);
}

TEST(ReduceKernelTest, AnEmptyReductionGivesTheIdentity) {
  const Array in(f32, contiguous({2, 0}));
  const Array integers(i8, contiguous({0}));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(run_reduce(Reduction::sum, f32, in, 2)[0].value(1), 0);
  EXPECT_EQ(run_reduce(Reduction::prod, f32, in, 2)[0].value(1), 1);
  EXPECT_EQ(run_reduce(Reduction::min, f32, in, 2)[0].value(1), infinity);
  EXPECT_EQ(run_reduce(Reduction::max, f32, in, 2)[0].value(1), -infinity);
  EXPECT_EQ(run_reduce(Reduction::any, bool_, in, 2)[0].value(1), 0);
  EXPECT_EQ(run_reduce(Reduction::all, bool_, in, 2)[0].value(1), 1);
  EXPECT_EQ(run_reduce(Reduction::count_nonzero, i64, in, 2)[0].value(1), 0);
  EXPECT_EQ(run_reduce(Reduction::max, i8, integers, 1)[0].value(0), -128);
  EXPECT_EQ(run_reduce(Reduction::min, i8, integers, 1)[0].value(0), 127);
  EXPECT_TRUE(std::isnan(run_reduce(Reduction::sum, f32, in, 2, 0)[0].value(0)));
  EXPECT_EQ(run_reduce(Reduction::sum, f32, in, 1)[0].numel(), 0);
}

TEST(ReduceKernelTest, WritesThroughTheStridesOfTheOutput) {
  Array in(f32, contiguous({5, 7, 3}));
  fill_range(in, 2, -1, 1);
  const auto dense = run_reduce(Reduction::sum, f32, in, 0b010);
  for (const Layout& layout : testing::output_layouts({5, 1, 3})) {
    const std::vector<Array> arrays = run_everywhere(
        {Array(f32, layout), in},
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::reduce(target, Reduction::sum, t[0], t[1]);
        },
        layout.name);
    for (std::int64_t i = 0; i < 15; ++i) ASSERT_EQ(arrays[0].bits(i), dense[0].bits(i));
  }
}

TEST(ReduceKernelTest, ANonZeroBoolByteCountsAsOne) {
  for (const Shape& sizes : {Shape{3, 300}, Shape{140, 40}, Shape{9, 5}}) {
    const auto [loose, strict] = loose_and_strict_bools(contiguous(sizes));
    for (const unsigned mask : {1u, 2u, 3u}) {
      for (const Reduction op : {Reduction::sum, Reduction::prod, Reduction::min, Reduction::max,
                                 Reduction::any, Reduction::all, Reduction::count_nonzero}) {
        const auto got = run_reduce(op, i64, loose, mask);
        const auto expected = run_reduce(op, i64, strict, mask);
        for (std::int64_t i = 0; i < got[0].numel(); ++i) {
          ASSERT_EQ(got[0].get<std::int64_t>(i), expected[0].get<std::int64_t>(i));
        }
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
