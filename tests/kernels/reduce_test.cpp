#include "kernels/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry {
namespace {

using kernels::Reduction;
using kernels::Target;
using testing::Array;
using testing::contiguous;
using testing::Layout;
using testing::run_everywhere;

// The accumulator type.
template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<is_floating_point(dtype_of<T>), float, std::int64_t>>;

// One operation, written out plainly.
template <class Acc>
struct Operation {
  std::function<Acc(Acc)> load;
  std::function<Acc(Acc, Acc)> combine;
};

template <class Acc>
Acc add(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class Acc>
Acc multiply(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class Acc>
Acc larger(Acc a, Acc b) {
  if (a != a) return a;
  if (b != b) return b;
  return a > b ? a : b;
}

template <class Acc>
Operation<Acc> operation(Reduction op) {
  const auto same = [](Acc x) { return x; };
  switch (op) {
    case Reduction::sum:
      return {same, add<Acc>};
    case Reduction::prod:
      return {same, multiply<Acc>};
    case Reduction::max:
      return {same, larger<Acc>};
    case Reduction::min:
      return {same, [](Acc a, Acc b) { return -larger<Acc>(-a, -b); }};
    case Reduction::sum_squares:
      return {[](Acc x) { return x * x; }, add<Acc>};
    case Reduction::sum_abs:
      return {[](Acc x) { return std::abs(x); }, add<Acc>};
    case Reduction::any:
      return {[](Acc x) { return Acc(x != 0); }, larger<Acc>};
    case Reduction::all:
      return {[](Acc x) { return Acc(x != 0); }, [](Acc a, Acc b) { return a < b ? a : b; }};
    case Reduction::count_nonzero:
      return {[](Acc x) { return Acc(x != 0); }, add<Acc>};
  }
  return {};
}

// Note [Reduction order], written out.
template <class Acc>
Acc in_order(const std::vector<Acc>& elements, const std::function<Acc(Acc, Acc)>& combine) {
  if (elements.size() == 1) return elements[0];
  std::vector<Acc> results;
  for (std::size_t first = 0; first < elements.size(); first += 16384) {
    std::vector<std::optional<Acc>> accumulators(128);
    const auto take_in = [&](std::optional<Acc>& into, const std::optional<Acc>& from) {
      if (from) into = into ? combine(*into, *from) : *from;
    };
    for (std::size_t k = first; k < std::min(first + 16384, elements.size()); ++k) {
      take_in(accumulators[k % 128], elements[k]);
    }
    for (std::size_t half = 64; half > 0; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) take_in(accumulators[j], accumulators[j + half]);
    }
    results.push_back(*accumulators[0]);
  }
  return in_order(results, combine);
}

// The sizes of the output: 1 along the dims whose bit is set in `mask`.
Shape reduced_sizes(const Shape& sizes, unsigned mask) {
  Shape result = sizes;
  for (int d = 0; d < sizes.size(); ++d) {
    if (mask >> d & 1) result[d] = 1;
  }
  return result;
}

// For every output, the row-major indices of its elements, in order.
std::vector<std::vector<std::int64_t>> members(const Shape& sizes, unsigned mask) {
  const Shape out = reduced_sizes(sizes, mask);
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(out.product()));
  for (std::int64_t i = 0; i < sizes.product(); ++i) {
    std::int64_t rest = i;
    std::int64_t output = 0;
    std::int64_t stride = 1;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      if (!(mask >> d & 1)) {
        output += rest % sizes[d] * stride;
        stride *= sizes[d];
      }
      rest /= sizes[d];
    }
    result[static_cast<std::size_t>(output)].push_back(i);
  }
  return result;
}

std::vector<Array> run_reduce(Reduction op, DType out, const Array& in, unsigned mask,
                              double divisor = 1) {
  return run_everywhere(
      {Array(out, contiguous(reduced_sizes(in.layout().sizes, mask))), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::reduce(target, op, t[0], t[1], divisor);
      },
      in.layout().name);
}

// Asserts the exact bits of every output (any NaN for a NaN).
template <class T, class Out>
void expect_in_order(Reduction op, const Array& in, unsigned mask, double divisor = 1) {
  using Acc = Accumulator<T>;
  const std::vector<Array> arrays = run_reduce(op, dtype_of<Out>, in, mask, divisor);
  const auto outputs = members(in.layout().sizes, mask);
  const Operation<Acc> how = operation<Acc>(op);
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    std::vector<Acc> elements;
    for (const std::int64_t i : outputs[o]) {
      elements.push_back(how.load(static_cast<Acc>(in.get<T>(i))));
    }
    Acc expected = in_order<Acc>(elements, how.combine);
    if constexpr (is_floating_point(dtype_of<Out>)) {
      if (divisor != 1) expected = expected / static_cast<Acc>(divisor);
    }
    const Out rounded = static_cast<Out>(expected);
    const Out got = arrays[0].get<Out>(static_cast<std::int64_t>(o));
    if constexpr (is_floating_point(dtype_of<Out>)) {
      if (std::isnan(static_cast<double>(rounded))) {
        ASSERT_TRUE(std::isnan(static_cast<double>(got)));
        continue;
      }
    }
    ASSERT_EQ(std::memcmp(&rounded, &got, sizeof got), 0)
        << "operation " << static_cast<int>(op) << " of " << in.dtype() << " " << in.layout().name
        << " " << in.layout().sizes << " mask " << mask << " output " << o << ": expected "
        << static_cast<double>(rounded) << ", but got " << static_cast<double>(got);
  }
}

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
}

// So many rows that a GPU is full with a warp per row or chunk.
TEST(ReduceKernelTest, ReducesManyRows) {
  for (const Shape& sizes : {Shape{1030, 1100}, Shape{520, 16386}, Shape{5000, 36}}) {
    Array in(f16, contiguous(sizes));
    fill_range(in, 3, -1, 1);
    expect_in_order<float16, float16>(Reduction::sum, in, 2);
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
  for (const Shape& sizes : {Shape{3, 300}, Shape{20001}, Shape{140, 40}}) {
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
        expect_in_order<T, T>(Reduction::sum_squares, in, mask);
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

// Bool memory with arbitrary bytes, and the same memory with 1 in place of non-zero bytes.
std::pair<Array, Array> loose_and_strict_bools(const Layout& layout) {
  std::pair<Array, Array> arrays{Array(bool_, layout), Array(bool_, layout)};
  for (std::int64_t i = 0; i < layout.numel(); ++i) {
    const auto byte = static_cast<std::uint8_t>(i % 3 == 0 ? 0 : i * 37);
    arrays.first.set(i, byte);
    arrays.second.set(i, static_cast<std::uint8_t>(byte != 0));
  }
  return arrays;
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

// --- arg_reduce ---

std::vector<Array> run_arg(bool largest, const Array& in, int dim) {
  const Shape sizes = reduced_sizes(in.layout().sizes, 1u << dim);
  return run_everywhere(
      {Array(in.dtype(), contiguous(sizes)), Array(i64, contiguous(sizes)), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::arg_reduce(target, largest, t[0], t[1], t[2], dim);
      },
      in.layout().name);
}

TEST(ArgReduceKernelTest, FindsTheFirstOfTheLargest) {
  for (const DType dtype : testing::kAllTypes) {
    for (const Shape& sizes : {Shape{4, 37}, Shape{37, 40}, Shape{2, 9000}, Shape{17000, 2}}) {
      for (int dim = 0; dim < 2; ++dim) {
        for (const bool largest : {true, false}) {
          Array in(dtype, sizes.product() < 2000 ? testing::transposed(sizes) : contiguous(sizes));
          fill_range(in, 5, 0, 9);  // many ties
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
            ASSERT_EQ(arrays[1].get<std::int64_t>(at), best) << dtype << sizes << dim;
            ASSERT_EQ(arrays[0].bits(at), in.bits(outputs[o][static_cast<std::size_t>(best)]));
          }
        }
      }
    }
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

// --- scan ---

// Note [Scan order], written out: the value before unit `unit` of a level, and the totals of
// groups.
template <class Acc>
std::optional<Acc> scan_before(const std::vector<Acc>& units, std::size_t unit,
                               const std::function<Acc(Acc, Acc)>& combine) {
  const std::size_t group = unit / 16;
  std::optional<Acc> before;
  if (group > 0) {
    std::vector<Acc> totals;
    for (std::size_t g = 0; g < group; ++g) {
      Acc total = units[16 * g];
      for (std::size_t i = 1; i < 16; ++i) total = combine(total, units[16 * g + i]);
      totals.push_back(total);
    }
    totals.push_back(Acc{});  // the group of `unit`, whose total is not used
    before = scan_before<Acc>(totals, group, combine);
  }
  std::optional<Acc> running;
  for (std::size_t i = 16 * group; i < unit; ++i)
    running = running ? combine(*running, units[i]) : units[i];
  if (!running) return before;
  return before ? combine(*before, *running) : *running;
}

template <class Acc>
std::vector<Acc> scan_in_order(const std::vector<Acc>& elements,
                               const std::function<Acc(Acc, Acc)>& combine) {
  std::vector<Acc> result;
  std::optional<Acc> before;
  std::vector<Acc> totals;
  Acc running{};
  for (std::size_t k = 0; k < elements.size(); ++k) {
    if (k % 16 == 0 && k > 0) {
      totals.push_back(running);
      totals.push_back(Acc{});
      before = scan_before<Acc>(totals, k / 16, combine);
      totals.pop_back();
    }
    running = k % 16 == 0 ? elements[k] : combine(running, elements[k]);
    result.push_back(before ? combine(*before, running) : running);
  }
  return result;
}

template <class T>
void expect_running(bool product, const Layout& layout, int dim) {
  using Out = std::conditional_t<is_floating_point(dtype_of<T>), T, std::int64_t>;
  using Acc = std::conditional_t<std::is_same_v<T, float>, double, Accumulator<T>>;
  Array in(dtype_of<T>, layout);
  fill_range(in, 4, is_floating_point(dtype_of<T>) ? -1.5 : 0, 1.5);
  const std::vector<Array> arrays = run_everywhere(
      {Array(dtype_of<Out>, contiguous(layout.sizes)), in},
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, product, t[0], t[1], dim);
      },
      layout.name);
  const std::function<Acc(Acc, Acc)> combine = product ? multiply<Acc> : add<Acc>;
  for (const auto& fibre : members(layout.sizes, 1u << dim)) {
    std::vector<Acc> elements;
    for (const std::int64_t i : fibre) elements.push_back(static_cast<Acc>(in.get<T>(i)));
    const std::vector<Acc> results = scan_in_order<Acc>(elements, combine);
    for (std::size_t k = 0; k < fibre.size(); ++k) {
      const Out expected = static_cast<Out>(results[k]);
      const Out got = arrays[0].get<Out>(fibre[k]);
      ASSERT_EQ(std::memcmp(&expected, &got, sizeof got), 0)
          << layout.name << layout.sizes << dim << " at " << k << ": expected "
          << static_cast<double>(expected) << ", but got " << static_cast<double>(got);
    }
  }
}

TEST(ScanKernelTest, ANonZeroBoolByteCountsAsOne) {
  const auto [loose, strict] = loose_and_strict_bools(contiguous({2, 3000}));
  const auto run = [](const Array& in, bool product) {
    return run_everywhere(
        {Array(i64, contiguous({2, 3000})), in},
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::scan(target, product, t[0], t[1], 1);
        },
        "bool");
  };
  for (const bool product : {false, true}) {
    EXPECT_TRUE(run(loose, product)[0].bytes() == run(strict, product)[0].bytes());
  }
}

TEST(ScanKernelTest, ScansInTheDocumentedOrderWhateverTheLayout) {
  for (const DType dtype : testing::kAllTypes) {
    dispatch(dtype, [](auto tag) {
      using T = typename decltype(tag)::type;
      for (const bool product : {false, true}) {
        for (int dim = 0; dim < 2; ++dim) {
          for (const Layout& layout : testing::input_layouts({9, 40})) {
            expect_running<T>(product, layout, dim);
          }
          expect_running<T>(product, contiguous({2, 3000}), dim);
        }
      }
    });
  }
}

TEST(ScanKernelTest, ScansFibresOfEveryLength) {
  for (const std::int64_t length : {1,   2,   15,   16,   17,   31,   32,   33,    255,   256,  257,
                                    511, 513, 4095, 4096, 4097, 4112, 8193, 65536, 65537, 70001}) {
    expect_running<float>(false, contiguous({2, length}), 1);
    expect_running<float>(false, testing::shifted({3, length}), 1);
    if (length > 9000) continue;
    expect_running<bfloat16>(false, contiguous({2, length}), 1);
    expect_running<std::uint8_t>(false, contiguous({2, length}), 1);
    expect_running<double>(true, contiguous({5, length}), 1);
    expect_running<float>(false, contiguous({length, 5}), 0);
    expect_running<float>(false, contiguous({length, 33}), 0);
    expect_running<bool>(false, contiguous({length, 40}), 0);
  }
  expect_running<float>(false, contiguous({300, 20}), 1);
  expect_running<float>(false, contiguous({20, 2100}), 0);
}

// More tiles of 4096 elements than a group of groups has: i8 keeps the memory small.
TEST(ScanKernelTest, ScansThroughEveryLevelOfTiles) {
  const std::int64_t length = 4096 * 16 * 16 + 4096 * 17 + 5;
  Array in(DType::i8, contiguous({length}));
  fill_range(in, 1, -3, 3);
  const std::vector<Array> arrays = run_everywhere(
      {Array(i64, contiguous({length})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, false, t[0], t[1], 0);
      },
      "i8");
  std::int64_t running = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    running += in.get<std::int8_t>(i);
    ASSERT_EQ(arrays[0].get<std::int64_t>(i), running) << i;
  }
}

TEST(ScanKernelTest, AMillionFloatsStayWithinAMillionth) {
  const std::int64_t length = 1000000;
  Array in(f32, contiguous({length}));
  fill_range(in, 1, 0, 1);
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({length})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, false, t[0], t[1], 0);
      },
      "f32");
  long double exact = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    exact += in.get<float>(i);
    ASSERT_NEAR(arrays[0].value(i) / static_cast<double>(exact), 1, 1e-6) << i;
  }
}

TEST(ScanKernelTest, KeepsTheSignOfZero) {
  Array in(f32, contiguous({40}));
  for (std::int64_t i = 0; i < 40; ++i) in.set(i, -0.0f);
  const std::vector<Array> arrays = run_everywhere(
      {Array(f32, contiguous({40})), in},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::scan(target, false, t[0], t[1], 0);
      },
      "-0");
  for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(arrays[0].bits(i), 0x80000000u) << i;
}

}  // namespace
}  // namespace gantry
