#include "kernels/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <gantry/core/error.hpp>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry {
namespace {

using kernels::BinaryOp;
using kernels::CompareOp;
using kernels::Operand;
using kernels::PredicateOp;
using kernels::Target;
using kernels::TernaryOp;
using kernels::UnaryOp;
using testing::Array;
using testing::contiguous;
using testing::kAllTypes;
using testing::kFloatingTypes;
using testing::kIntegerTypes;
using testing::Layout;
using testing::run_everywhere;

// Long enough for vector accesses and a remainder.
const Shape kLine = {1027};

template <class T>
constexpr bool kIsFloating = is_floating_point(dtype_of<T>);

// An exact result rounded to T: f16 and bf16 go through f32.
template <class T>
T rounded(double exact) {
  if constexpr (std::is_same_v<T, double>) return exact;
  else return T(static_cast<float>(exact));
}

// a op b for floats whose exact result rounds alike from f64, and for f64 itself.
template <class T>
T arithmetic(BinaryOp op, T left, T right) {
  const auto a = static_cast<double>(left);
  const auto b = static_cast<double>(right);
  switch (op) {
    case BinaryOp::add: return rounded<T>(a + b);
    case BinaryOp::sub: return rounded<T>(a - b);
    case BinaryOp::mul: return rounded<T>(a * b);
    case BinaryOp::div: return rounded<T>(a / b);
    case BinaryOp::fmod: return rounded<T>(std::fmod(a, b));
    case BinaryOp::minimum:
      return std::isnan(a) || std::isnan(b) ? rounded<T>(NAN) : b < a ? right : left;
    case BinaryOp::maximum:
      return std::isnan(a) || std::isnan(b) ? rounded<T>(NAN) : a < b ? right : left;
    default: throw InvalidArgument("no oracle");
  }
}

template <class T>
T wrapped(__int128 exact) {
  if constexpr (std::is_same_v<T, bool>) return exact != 0;
  else return static_cast<T>(exact);
}

__int128 floor_divided(__int128 a, __int128 b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

__int128 power(__int128 base, __int128 exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  __int128 result = 1;
  // Modulo 2^64 the powers of an even number vanish, those of an odd one have a period below 2^63.
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
    case BinaryOp::add: return wrapped<T>(a + b);
    case BinaryOp::sub: return wrapped<T>(a - b);
    case BinaryOp::mul: return wrapped<T>(a * b);
    case BinaryOp::div_trunc: return b == 0 ? T(0) : wrapped<T>(a / b);
    case BinaryOp::div_floor: return b == 0 ? T(0) : wrapped<T>(floor_divided(a, b));
    case BinaryOp::remainder: return b == 0 ? T(0) : wrapped<T>(a - b * floor_divided(a, b));
    case BinaryOp::fmod: return b == 0 ? T(0) : wrapped<T>(a % b);
    case BinaryOp::pow: return wrapped<T>(power(a, b));
    case BinaryOp::minimum: return b < a ? right : left;
    case BinaryOp::maximum: return a < b ? right : left;
    case BinaryOp::bitwise_and: return wrapped<T>(a & b);
    case BinaryOp::bitwise_or: return wrapped<T>(a | b);
    case BinaryOp::bitwise_xor: return wrapped<T>(a ^ b);
    case BinaryOp::shift_left:
      return b < 0 || b >= width ? T(0)
                                 : wrapped<T>(static_cast<__int128>(
                                       static_cast<unsigned __int128>(a) << static_cast<int>(b)));
    case BinaryOp::shift_right:
      return b < 0 || b >= width ? wrapped<T>(a < 0 ? -1 : 0) : wrapped<T>(a >> static_cast<int>(b));
    default: throw InvalidArgument("no oracle");
  }
}

template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// Expected bits: a computed NaN is the positive quiet one.
template <class T>
std::uint64_t expected_bits(T value) {
  if constexpr (kIsFloating<T>) {
    if (std::isnan(static_cast<double>(value))) {
      return std::is_same_v<T, double>  ? 0x7ff8000000000000u
             : std::is_same_v<T, float> ? 0x7fc00000u
                                        : 0x7fffu;
    }
  }
  return bits_of(value);
}

std::vector<Array> random_arrays(DType out, std::initializer_list<DType> inputs,
                                 std::uint32_t seed) {
  std::vector<Array> arrays{Array(out, contiguous(kLine))};
  for (const DType dtype : inputs) {
    arrays.emplace_back(dtype, contiguous(kLine));
    fill_random(arrays.back(), seed++);
  }
  return arrays;
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
      const auto arrays = run_binary(op, random_arrays(dtype, {dtype, dtype}, 7));
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

TEST(BinaryKernelTest, WrapsIntegersAndTreatsBoolAsLogic) {
  for (const DType dtype : {DType::bool_, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    for (const BinaryOp op :
         {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div_trunc, BinaryOp::div_floor,
          BinaryOp::remainder, BinaryOp::fmod, BinaryOp::minimum, BinaryOp::maximum,
          BinaryOp::bitwise_and, BinaryOp::bitwise_or, BinaryOp::bitwise_xor}) {
      const auto arrays = run_binary(op, random_arrays(dtype, {dtype, dtype}, 11));
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
  }
}

TEST(BinaryKernelTest, ShiftsAndPowersOfIntegersFollowTheirRules) {
  for (const DType dtype : kIntegerTypes) {
    for (const BinaryOp op : {BinaryOp::shift_left, BinaryOp::shift_right, BinaryOp::pow}) {
      auto input = random_arrays(dtype, {dtype, dtype}, 13);
      // Distances and exponents around the interesting ones.
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (!kIsFloating<T>) {
          for (std::int64_t i = 0; i < input[2].numel(); ++i) {
            input[2].set<T>(i, static_cast<T>(i % 70 - (std::is_signed_v<T> ? 3 : 0)));
          }
        }
      });
      const auto arrays = run_binary(op, std::move(input));
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

TEST(BinaryKernelTest, TakesNumbersOnEitherSide) {
  for (const DType dtype : kFloatingTypes) {
    const auto arrays = run_everywhere(
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

TEST(BinaryKernelTest, BoundsThatTheTypeCannotHoldStayBounds) {
  const auto arrays = run_everywhere(
      random_arrays(i8, {i8}, 5),
      [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, BinaryOp::maximum, t[0], t[1], Scalar(-1000));
        kernels::binary(target, BinaryOp::minimum, t[0], t[0], Scalar(1000));
      },
      "bounds");
  for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
    ASSERT_EQ(arrays[0].value(i), arrays[1].value(i));
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
          const auto arrays = run_binary(BinaryOp::sub, std::move(input));
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
    const auto arrays = run_everywhere(
        input,
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::binary(target, BinaryOp::add, t[0], t[0], t[1]);
        },
        "in place");
    for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
      ASSERT_EQ(arrays[0].get<std::int16_t>(i),
                static_cast<std::int16_t>(input[0].get<std::int16_t>(i) +
                                          input[1].get<std::int16_t>(i)));
    }
  }
}

TEST(BinaryKernelTest, RefusesOpsThatTheTypeLacks) {
  std::vector<Array> arrays = random_arrays(f32, {f32, f32}, 9);
  EXPECT_THROW(testing::run_on_cpu(arrays,
                                   [](const Target& target, const std::vector<TensorRef>& t) {
                                     kernels::binary(target, BinaryOp::bitwise_and, t[0], t[1],
                                                     t[2]);
                                   }),
               DTypeError);
}

TEST(UnaryKernelTest, ComputesExactFloatFunctions) {
  for (const DType dtype : kFloatingTypes) {
    const auto check = [&](UnaryOp op, auto oracle) {
      const auto arrays = run_everywhere(
          random_arrays(dtype, {dtype}, 21),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::unary(target, op, t[0], t[1]);
          },
          "unary");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const T expected = rounded<T>(oracle(arrays[1].value(i)));
          ASSERT_EQ(arrays[0].bits(i), expected_bits(expected))
              << dtype << " op " << static_cast<int>(op) << " of " << arrays[1].value(i) << " gave "
              << arrays[0].value(i);
        }
      });
    };
    check(UnaryOp::neg, [](double x) { return -x; });
    check(UnaryOp::abs, [](double x) { return std::fabs(x); });
    check(UnaryOp::sign, [](double x) { return std::isnan(x) ? x : 1.0 * ((x > 0) - (x < 0)); });
    check(UnaryOp::square, [](double x) { return x * x; });
    check(UnaryOp::reciprocal, [](double x) { return 1 / x; });
    check(UnaryOp::sqrt, [](double x) { return std::sqrt(x); });
    check(UnaryOp::rsqrt, [&](double x) {
      return dtype == f64 ? 1 / std::sqrt(x) : 1 / double{static_cast<float>(std::sqrt(x))};
    });
    check(UnaryOp::relu, [](double x) { return x <= 0 ? 0.0 : x; });
    check(UnaryOp::floor, [](double x) { return std::floor(x); });
    check(UnaryOp::ceil, [](double x) { return std::ceil(x); });
    check(UnaryOp::round, [](double x) { return std::nearbyint(x); });
    check(UnaryOp::trunc, [](double x) { return std::trunc(x); });
    check(UnaryOp::frac, [](double x) { return x - std::trunc(x); });
  }
}

TEST(UnaryKernelTest, WrapsIntegers) {
  for (const DType dtype : kIntegerTypes) {
    const auto check = [&](UnaryOp op, auto oracle) {
      const auto arrays = run_everywhere(
          random_arrays(dtype, {dtype}, 23),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::unary(target, op, t[0], t[1]);
          },
          "unary");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (!kIsFloating<T>) {
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            ASSERT_EQ(arrays[0].get<T>(i), wrapped<T>(oracle(__int128{arrays[1].get<T>(i)})))
                << dtype << " op " << static_cast<int>(op) << " of " << arrays[1].value(i);
          }
        }
      });
    };
    check(UnaryOp::neg, [](__int128 x) { return -x; });
    check(UnaryOp::abs, [](__int128 x) { return x < 0 ? -x : x; });
    check(UnaryOp::sign, [](__int128 x) { return __int128{(x > 0) - (x < 0)}; });
    check(UnaryOp::square, [](__int128 x) { return x * x; });
    check(UnaryOp::relu, [](__int128 x) { return x < 0 ? 0 : x; });
    check(UnaryOp::bitwise_not, [](__int128 x) { return ~x; });
  }
}

TEST(UnaryKernelTest, InvertsBool) {
  const auto arrays = run_everywhere(
      random_arrays(DType::bool_, {DType::bool_}, 1),
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::unary(target, UnaryOp::bitwise_not, t[0], t[1]);
      },
      "not");
  for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
    ASSERT_EQ(arrays[0].get<bool>(i), !arrays[1].get<bool>(i));
  }
}

TEST(PredicateKernelTest, ClassifiesEveryType) {
  for (const DType dtype : kAllTypes) {
    for (const PredicateOp op : {PredicateOp::logical_not, PredicateOp::is_nan, PredicateOp::is_inf,
                                 PredicateOp::is_finite}) {
      const auto arrays = run_everywhere(
          random_arrays(DType::bool_, {dtype}, 31),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::predicate(target, op, t[0], t[1]);
          },
          "predicate");
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        const double x = arrays[1].value(i);
        const bool expected = op == PredicateOp::logical_not ? x == 0
                              : op == PredicateOp::is_nan    ? std::isnan(x)
                              : op == PredicateOp::is_inf    ? std::isinf(x)
                                                             : std::isfinite(x);
        ASSERT_EQ(arrays[0].get<bool>(i), expected) << dtype << " " << x;
      }
    }
  }
}

bool compared(CompareOp op, auto a, auto b) {
  switch (op) {
    case CompareOp::eq: return a == b;
    case CompareOp::ne: return a != b;
    case CompareOp::lt: return a < b;
    case CompareOp::le: return a <= b;
    case CompareOp::gt: return a > b;
    case CompareOp::ge: return a >= b;
    case CompareOp::logical_and: return a != 0 && b != 0;
    case CompareOp::logical_or: return a != 0 || b != 0;
    case CompareOp::logical_xor: return (a != 0) != (b != 0);
  }
  return false;
}

constexpr CompareOp kCompareOps[] = {
    CompareOp::eq, CompareOp::ne, CompareOp::lt,          CompareOp::le,        CompareOp::gt,
    CompareOp::ge, CompareOp::logical_and, CompareOp::logical_or, CompareOp::logical_xor};

TEST(CompareKernelTest, ComparesEveryType) {
  for (const DType dtype : kAllTypes) {
    for (const CompareOp op : kCompareOps) {
      const auto arrays = run_everywhere(
          random_arrays(DType::bool_, {dtype, dtype}, 41),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::compare(target, op, t[0], t[1], t[2], dtype);
          },
          "compare");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        using Wide = std::conditional_t<kIsFloating<T>, double, std::int64_t>;
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const auto a = static_cast<Wide>(arrays[1].get<T>(i));
          const auto b = static_cast<Wide>(arrays[2].get<T>(i));
          ASSERT_EQ(arrays[0].get<bool>(i), compared(op, a, b)) << dtype << " " << a << ", " << b;
        }
      });
    }
  }
}

TEST(CompareKernelTest, ComparesNumbersByValue) {
  const auto arrays = run_everywhere(
      {Array(DType::bool_, contiguous({2})), Array(u8, contiguous({2}))},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, BinaryOp::add, t[1], t[1], Scalar(255));
        kernels::compare(target, CompareOp::eq, t[0], t[1], Scalar(-1), u8);
      },
      "u8 == -1");
  EXPECT_EQ(arrays[1].get<std::uint8_t>(0), 255);
  EXPECT_FALSE(arrays[0].get<bool>(0));
}

TEST(TernaryKernelTest, ComputesInStatedOrder) {
  for (const DType dtype : {f32, f64}) {
    const auto check = [&](TernaryOp op, auto oracle) {
      const auto arrays = run_everywhere(
          random_arrays(dtype, {dtype, dtype, dtype}, 51),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::ternary(target, op, t[0], t[1], t[2], t[3], 0.3);
          },
          "ternary");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_floating_point_v<T>) {
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            const T expected = oracle(arrays[1].get<T>(i), arrays[2].get<T>(i), arrays[3].get<T>(i));
            ASSERT_EQ(arrays[0].bits(i), expected_bits(expected))
                << dtype << " op " << static_cast<int>(op);
          }
        }
      });
    };
    check(TernaryOp::lerp, [](auto a, auto b, auto c) { return a + c * (b - a); });
    check(TernaryOp::addcmul, [](auto a, auto b, auto c) {
      return a + static_cast<decltype(a)>(0.3) * b * c;
    });
    check(TernaryOp::addcdiv, [](auto a, auto b, auto c) {
      return a + static_cast<decltype(a)>(0.3) * (b / c);
    });
    check(TernaryOp::clamp, [](auto a, auto b, auto c) {
      if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return static_cast<decltype(a)>(NAN);
      const auto raised = a < b ? b : a;
      return c < raised ? c : raised;
    });
  }
}

TEST(TernaryKernelTest, ClampsIntegersByNumbers) {
  for (const DType dtype : kIntegerTypes) {
    const auto arrays = run_everywhere(
        random_arrays(dtype, {dtype}, 61),
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::ternary(target, TernaryOp::clamp, t[0], t[1], Scalar(-100000), Scalar(5));
        },
        "clamp");
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      if constexpr (!kIsFloating<T>) {
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const std::int64_t x = arrays[1].get<T>(i);
          ASSERT_EQ(std::int64_t{arrays[0].get<T>(i)}, std::min<std::int64_t>(std::max<std::int64_t>(x, -100000), 5)) << x;
        }
      }
    });
  }
}

TEST(WhereKernelTest, SelectsBitsInEveryLayout) {
  const Shape sizes = {4, 5, 6};
  for (const DType dtype : kAllTypes) {
    for (const Layout& layout : testing::input_layouts(sizes)) {
      std::vector<Array> input{Array(dtype, contiguous(sizes)), Array(DType::bool_, layout),
                               Array(dtype, testing::transposed(sizes)), Array(dtype, layout)};
      for (std::size_t k = 1; k < input.size(); ++k) fill_random(input[k], 70 + k);
      const auto arrays = run_everywhere(
          input,
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::where(target, t[0], t[1], t[2], t[3]);
          },
          "where");
      for (std::int64_t i = 0; i < sizes.product(); ++i) {
        ASSERT_EQ(arrays[0].bits(i), arrays[arrays[1].get<bool>(i) ? 2 : 3].bits(i)) << layout.name;
      }
      const auto filled = run_everywhere(
          input,
          [](const Target& target, const std::vector<TensorRef>& t) {
            kernels::where(target, t[0], t[1], Scalar(1), t[3]);
          },
          "where number");
      for (std::int64_t i = 0; i < sizes.product(); ++i) {
        if (arrays[1].get<bool>(i)) {
          ASSERT_EQ(filled[0].value(i), 1) << dtype;
        } else {
          ASSERT_EQ(filled[0].bits(i), filled[3].bits(i)) << dtype;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gantry
