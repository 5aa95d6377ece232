#include "kernels/elementwise/elementwise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <gantry/core/error.hpp>

#include "tests/kernels/elementwise/scalar_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::BinaryOp;
using kernels::Target;

// a op b computed in f64, for floats whose result has the same rounding from f64, and for f64.
template <class T>
T arithmetic(BinaryOp op, T left, T right) {
  const auto a = static_cast<double>(left);
  const auto b = static_cast<double>(right);
  switch (op) {
    case BinaryOp::add:
      return rounded<T>(a + b);
    case BinaryOp::sub:
      return rounded<T>(a - b);
    case BinaryOp::mul:
      return rounded<T>(a * b);
    case BinaryOp::div:
      return rounded<T>(a / b);
    case BinaryOp::fmod:
      return rounded<T>(std::fmod(a, b));
    case BinaryOp::minimum:
      return std::isnan(a) || std::isnan(b) ? rounded<T>(NAN) : b < a ? right : left;
    case BinaryOp::maximum:
      return std::isnan(a) || std::isnan(b) ? rounded<T>(NAN) : a < b ? right : left;
    default:
      throw InvalidArgument("no oracle");
  }
}

__int128 floor_divided(__int128 a, __int128 b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

__int128 power(__int128 base, __int128 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  __int128 result = 1;
  // Modulo 2^64 the powers of an even number vanish, the powers of an odd one have a period below
  // 2^63.
  for (__int128 i = 0; i < exponent % (__int128{1} << 62) && i < 4096; ++i) {
    result = static_cast<std::int64_t>(result * base);
  }
  return result;
}

template <class T>
T integer_result(BinaryOp op, T left, T right) {
  const __int128 a = left;
  const __int128 b = right;
  const int width = static_cast<int>(sizeof(T) * 8);
  switch (op) {
    case BinaryOp::add:
      return wrapped<T>(a + b);
    case BinaryOp::sub:
      return wrapped<T>(a - b);
    case BinaryOp::mul:
      return wrapped<T>(a * b);
    case BinaryOp::div_trunc:
      return b == 0 ? T(0) : wrapped<T>(a / b);
    case BinaryOp::div_floor:
      return b == 0 ? T(0) : wrapped<T>(floor_divided(a, b));
    case BinaryOp::remainder:
      return b == 0 ? T(0) : wrapped<T>(a - b * floor_divided(a, b));
    case BinaryOp::fmod:
      return b == 0 ? T(0) : wrapped<T>(a % b);
    case BinaryOp::pow:
      return wrapped<T>(power(a, b));
    case BinaryOp::minimum:
      return b < a ? right : left;
    case BinaryOp::maximum:
      return a < b ? right : left;
    case BinaryOp::bitwise_and:
      return wrapped<T>(a & b);
    case BinaryOp::bitwise_or:
      return wrapped<T>(a | b);
    case BinaryOp::bitwise_xor:
      return wrapped<T>(a ^ b);
    case BinaryOp::shift_left:
      return b < 0 || b >= width ? T(0)
                                 : wrapped<T>(static_cast<__int128>(
                                       static_cast<unsigned __int128>(a) << static_cast<int>(b)));
    case BinaryOp::shift_right:
      return b < 0 || b >= width ? wrapped<T>(a < 0 ? -1 : 0)
                                 : wrapped<T>(a >> static_cast<int>(b));
    default:
      throw InvalidArgument("no oracle");
  }
}

std::vector<Array> run_binary(BinaryOp op, std::vector<Array> arrays, const Scalar& alpha = 1) {
  return run_everywhere(
      std::move(arrays),
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, op, t[0], t[1], t[2], alpha);
      },
      "binary op " + std::to_string(static_cast<int>(op)));
}

TEST(BinaryKernelTest, ComputesFloatArithmeticExactly) {
  for (const DType dtype : kFloatingTypes) {
    for (const BinaryOp op : {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div,
                              BinaryOp::fmod, BinaryOp::minimum, BinaryOp::maximum}) {
      const std::vector<Array> arrays = run_binary(op, random_arrays(dtype, {dtype, dtype}, 7));
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const T expected = arithmetic<T>(op, arrays[1].get<T>(i), arrays[2].get<T>(i));
          ASSERT_EQ(arrays[0].bits(i), expected_bits(expected))
              << dtype << " op " << static_cast<int>(op) << ": " << arrays[1].value(i) << ", "
              << arrays[2].value(i) << " gave " << arrays[0].value(i);
        }
      });
    }
  }
}

// The first array is `op` of the others, by integer_result.
void expect_integer_results(BinaryOp op, DType dtype, const std::vector<Array>& arrays) {
  dispatch(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!kIsFloating<T>) {
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        ASSERT_EQ(arrays[0].get<T>(i),
                  integer_result<T>(op, arrays[1].get<T>(i), arrays[2].get<T>(i)))
            << dtype << " op " << static_cast<int>(op) << ": " << arrays[1].value(i) << ", "
            << arrays[2].value(i);
      }
    }
  });
}

TEST(BinaryKernelTest, WrapsIntegersAndTreatsBoolAsLogic) {
  for (const DType dtype :
       {DType::bool_, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    for (const BinaryOp op :
         {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div_trunc, BinaryOp::div_floor,
          BinaryOp::remainder, BinaryOp::fmod, BinaryOp::minimum, BinaryOp::maximum,
          BinaryOp::bitwise_and, BinaryOp::bitwise_or, BinaryOp::bitwise_xor}) {
      const std::vector<Array> arrays = run_binary(op, random_arrays(dtype, {dtype, dtype}, 11));
      expect_integer_results(op, dtype, arrays);
    }
  }
}

TEST(BinaryKernelTest, ShiftsAndPowersOfIntegersFollowTheirRules) {
  for (const DType dtype : kIntegerTypes) {
    for (const BinaryOp op : {BinaryOp::shift_left, BinaryOp::shift_right, BinaryOp::pow}) {
      auto input = random_arrays(dtype, {dtype, dtype}, 13);
      // Shift counts and exponents around the limits.
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (!kIsFloating<T>) {
          for (std::int64_t i = 0; i < input[2].numel(); ++i) {
            input[2].set<T>(i, static_cast<T>(i % 70 - (std::is_signed_v<T> ? 3 : 0)));
          }
        }
      });
      const std::vector<Array> arrays = run_binary(op, std::move(input));
      expect_integer_results(op, dtype, arrays);
    }
  }
}

TEST(BinaryKernelTest, RoundsQuotientsAsPythonDoes) {
  std::vector<Array> input{Array(f32, contiguous(kLine)), Array(f32, contiguous(kLine)),
                           Array(f32, contiguous(kLine))};
  fill_range(input[1], 1, -100, 100);
  fill_range(input[2], 2, -9, 9);
  input[2].set<float>(0, 0.1f);
  input[1].set<float>(0, 1.0f);
  const auto floored = run_binary(BinaryOp::div_floor, input);
  const auto truncated = run_binary(BinaryOp::div_trunc, input);
  const auto rest = run_binary(BinaryOp::remainder, input);
  for (std::int64_t i = 0; i < input[0].numel(); ++i) {
    const double a = input[1].value(i);
    const double b = input[2].value(i);
    ASSERT_EQ(floored[0].value(i), std::floor(a / b)) << a << ", " << b;
    ASSERT_EQ(truncated[0].value(i), std::trunc(static_cast<float>(a / b))) << a << ", " << b;
    double expected = std::fmod(a, b);
    if (expected != 0 && (expected < 0) != (b < 0)) expected += b;
    ASSERT_EQ(rest[0].get<float>(i), static_cast<float>(expected)) << a << ", " << b;
  }
}

TEST(BinaryKernelTest, MultipliesBByAlphaFirst) {
  const auto added = run_binary(BinaryOp::add, random_arrays(f32, {f32, f32}, 3), 0.1);
  for (std::int64_t i = 0; i < added[0].numel(); ++i) {
    const float product = 0.1f * added[2].get<float>(i);
    ASSERT_EQ(added[0].bits(i), expected_bits(added[1].get<float>(i) + product));
  }
  const auto subtracted = run_binary(BinaryOp::sub, random_arrays(i8, {i8, i8}, 3), 3);
  for (std::int64_t i = 0; i < subtracted[0].numel(); ++i) {
    ASSERT_EQ(subtracted[0].get<std::int8_t>(i),
              static_cast<std::int8_t>(subtracted[1].get<std::int8_t>(i) -
                                       3 * subtracted[2].get<std::int8_t>(i)));
  }
}

TEST(BinaryKernelTest, AcceptsNumbersOnEitherSide) {
  for (const DType dtype : kFloatingTypes) {
    const std::vector<Array> arrays = run_everywhere(
        random_arrays(dtype, {dtype}, 5),
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::binary(target, BinaryOp::sub, t[0], Scalar(2.5), t[1]);
          kernels::binary(target, BinaryOp::mul, t[0], t[0], Scalar(-3));
        },
        "numbers");
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        const T difference = rounded<T>(2.5 - arrays[1].value(i));
        const T expected = rounded<T>(-3 * static_cast<double>(difference));
        ASSERT_EQ(arrays[0].bits(i), expected_bits(expected)) << dtype << arrays[1].value(i);
      }
    });
  }
}

TEST(BinaryKernelTest, SelectsNumbersAsElements) {
  const std::vector<Array> arrays = run_everywhere(
      random_arrays(i8, {i8}, 5),
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, BinaryOp::maximum, t[0], t[1], Scalar(-1000));
      },
      "maximum(i8, -1000)");
  for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
    ASSERT_EQ(arrays[0].value(i), std::max(arrays[1].value(i), 24.0));  // -1000 mod 256
  }
}

TEST(BinaryKernelTest, WorksInEveryLayout) {
  for (const Shape& sizes : {Shape{5, 6, 7}, Shape{}, Shape{0, 3}, Shape{1, 4}}) {
    for (const Layout& out : testing::output_layouts(sizes)) {
      for (const Layout& left : testing::input_layouts(sizes)) {
        for (const Layout& right : testing::input_layouts(sizes)) {
          std::vector<Array> input{Array(i32, out), Array(i32, left), Array(i32, right)};
          fill_random(input[1], 1);
          fill_random(input[2], 2);
          const std::vector<Array> arrays = run_binary(BinaryOp::sub, std::move(input));
          for (std::int64_t i = 0; i < sizes.product(); ++i) {
            ASSERT_EQ(arrays[0].get<std::int32_t>(i),
                      wrapped<std::int32_t>(__int128{arrays[1].get<std::int32_t>(i)} -
                                            arrays[2].get<std::int32_t>(i)))
                << out.name << " = " << left.name << " - " << right.name;
          }
        }
      }
    }
  }
}

TEST(BinaryKernelTest, MayWriteToItsInput) {
  for (const Layout& layout : testing::output_layouts({33, 5})) {
    std::vector<Array> input{Array(i16, layout), Array(i16, layout)};
    fill_random(input[0], 9);
    fill_random(input[1], 10);
    const std::vector<Array> arrays = run_everywhere(
        input,
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::binary(target, BinaryOp::add, t[0], t[0], t[1]);
        },
        "in place");
    for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
      ASSERT_EQ(
          arrays[0].get<std::int16_t>(i),
          static_cast<std::int16_t>(input[0].get<std::int16_t>(i) + input[1].get<std::int16_t>(i)));
    }
  }
}

TEST(BinaryKernelTest, RejectsOpsThatTheDTypeDoesNotSupport) {
  std::vector<Array> arrays = random_arrays(f32, {f32, f32}, 9);
  EXPECT_THROW(testing::run_on_cpu(arrays,
                                   [](const Target& target, const std::vector<TensorRef>& t) {
                                     kernels::binary(target, BinaryOp::bitwise_and, t[0], t[1],
                                                     t[2]);
                                   }),
               DTypeError);
}

// A row of numbers added to each row, and a column to each column, with and without vector
// accesses.
TEST(BinaryKernelTest, BroadcastsRowsAndColumns) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8, DType::i64}) {
    for (const std::int64_t columns : {64, 48, 7}) {
      for (const std::int64_t offset : {0, 1}) {
        for (const Dims& strides : {Dims{0, 1}, Dims{1, 0}, Dims{0, 0}}) {
          Layout bias = testing::shifted({6, columns}, offset);
          bias.strides = strides;
          std::vector<Array> input{Array(dtype, testing::shifted({6, columns}, offset)),
                                   Array(dtype, contiguous({6, columns})), Array(dtype, bias)};
          fill_range(input[1], 1, 0, 60);
          fill_range(input[2], 2, 0, 60);
          const std::vector<Array> arrays = run_everywhere(
              input,
              [](const Target& target, const std::vector<TensorRef>& t) {
                kernels::binary(target, BinaryOp::add, t[0], t[1], t[2]);
              },
              "broadcast");
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            const double expected = arrays[1].value(i) + arrays[2].value(i);
            ASSERT_NEAR(arrays[0].value(i), expected, dtype == DType::bf16 ? 0.5 : 1e-5)
                << dtype << columns << strides << i;
          }
        }
      }
    }
  }
}

// A GPU reads inputs of long rows by aligned vectors, wherever the rows begin.
TEST(BinaryKernelTest, LongRowsBeginAnywhere) {
  for (const DType dtype : {f32, bf16, u8, i64}) {
    for (const std::int64_t columns : {127, 128, 255, 256, 257, 515}) {
      for (std::int64_t offset = 0; offset < 16; ++offset) {
        // Rows apart from each other, one after the other, and with one element each.
        for (const Dims& strides : {Dims{columns + 3, 1}, Dims{columns, 1}, Dims{1, 0}}) {
          Layout left = testing::shifted({3, columns + 3}, offset);
          left.sizes = {3, columns};
          left.strides = strides;
          std::vector<Array> input{Array(dtype, contiguous({3, columns})), Array(dtype, left),
                                   Array(dtype, testing::shifted({3, columns}, offset * 7 % 16))};
          fill_range(input[1], 1, 0, 60);
          fill_range(input[2], 2, 0, 60);
          const std::vector<Array> arrays = run_binary(BinaryOp::maximum, std::move(input));
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            ASSERT_EQ(arrays[0].value(i), std::max(arrays[1].value(i), arrays[2].value(i)))
                << dtype << columns << strides << offset << " at " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
