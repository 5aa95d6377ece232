#include "kernels/elementwise/elementwise.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include <gantry/core/error.hpp>

#include "tests/kernels/elementwise/scalar_oracle.hpp"

namespace gantry::testing {
namespace {

using kernels::BinaryOp;
using kernels::CompareOp;
using kernels::PredicateOp;
using kernels::Target;
using kernels::TernaryOp;
using kernels::UnaryOp;

TEST(UnaryKernelTest, ComputesExactFloatFunctions) {
  for (const DType dtype : kFloatingTypes) {
    const auto check = [&](UnaryOp op, auto oracle) {
      const std::vector<Array> arrays = run_everywhere(
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
    check(UnaryOp::relu, [](double x) { return x < 0 ? 0.0 : x; });
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
      const std::vector<Array> arrays = run_everywhere(
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
  const std::vector<Array> arrays = run_everywhere(
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
      const std::vector<Array> arrays = run_everywhere(
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
    case CompareOp::eq:
      return a == b;
    case CompareOp::ne:
      return a != b;
    case CompareOp::lt:
      return a < b;
    case CompareOp::le:
      return a <= b;
    case CompareOp::gt:
      return a > b;
    case CompareOp::ge:
      return a >= b;
    case CompareOp::logical_and:
      return a != 0 && b != 0;
    case CompareOp::logical_or:
      return a != 0 || b != 0;
    case CompareOp::logical_xor:
      return (a != 0) != (b != 0);
  }
  return false;
}

constexpr CompareOp kCompareOps[] = {
    CompareOp::eq,          CompareOp::ne,         CompareOp::lt,
    CompareOp::le,          CompareOp::gt,         CompareOp::ge,
    CompareOp::logical_and, CompareOp::logical_or, CompareOp::logical_xor};

TEST(CompareKernelTest, ComparesEveryType) {
  for (const DType dtype : kAllTypes) {
    for (const CompareOp op : kCompareOps) {
      const std::vector<Array> arrays = run_everywhere(
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

TEST(CompareKernelTest, ComparesNumbersAsElements) {
  const std::vector<Array> arrays = run_everywhere(
      {Array(DType::bool_, contiguous({2})), Array(u8, contiguous({2}))},
      [](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, BinaryOp::add, t[1], t[1], Scalar(255));
        kernels::compare(target, CompareOp::eq, t[0], t[1], Scalar(-1), u8);
      },
      "u8 == -1");
  EXPECT_EQ(arrays[1].get<std::uint8_t>(0), 255);
  EXPECT_TRUE(arrays[0].get<bool>(0));
}

TEST(CompareKernelTest, RoundsNumbersToTheTypeOfTheElements) {
  for (const DType dtype : kFloatingTypes) {
    for (const CompareOp op : kCompareOps) {
      for (const double number : {0.1, -1.0 / 3, 1e-10, 1e6, 0.0}) {
        std::vector<Array> input = random_arrays(DType::bool_, {dtype}, 45);
        dispatch(dtype, [&]<class T>(TypeTag<T>) {
          if constexpr (kIsFloating<T>) input[1].set(0, rounded<T>(number));
        });
        const std::vector<Array> arrays = run_everywhere(
            input,
            [&](const Target& target, const std::vector<TensorRef>& t) {
              kernels::compare(target, op, t[0], t[1], Scalar(number), dtype);
            },
            "compare");
        dispatch(dtype, [&]<class T>(TypeTag<T>) {
          if constexpr (kIsFloating<T>) {
            for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
              const double a = arrays[1].value(i);
              const auto b = static_cast<double>(rounded<T>(number));
              ASSERT_EQ(arrays[0].get<bool>(i), compared(op, a, b)) << dtype << " " << a;
            }
          }
        });
      }
    }
  }
}

TEST(TernaryKernelTest, ComputesInStatedOrder) {
  for (const DType dtype : {f32, f64}) {
    const auto check = [&](TernaryOp op, auto oracle) {
      const std::vector<Array> arrays = run_everywhere(
          random_arrays(dtype, {dtype, dtype, dtype}, 51),
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::ternary(target, op, t[0], t[1], t[2], t[3], 0.3);
          },
          "ternary");
      dispatch(dtype, [&]<class T>(TypeTag<T>) {
        if constexpr (std::is_floating_point_v<T>) {
          for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
            const T expected =
                oracle(arrays[1].get<T>(i), arrays[2].get<T>(i), arrays[3].get<T>(i));
            ASSERT_EQ(arrays[0].bits(i), expected_bits(expected))
                << dtype << " op " << static_cast<int>(op);
          }
        }
      });
    };
    check(TernaryOp::lerp, [](auto a, auto b, auto c) {
      return std::fabs(c) < 0.5f ? a + c * (b - a) : b - (b - a) * (1 - c);
    });
    check(TernaryOp::addcmul,
          [](auto a, auto b, auto c) { return a + static_cast<decltype(a)>(0.3) * b * c; });
    check(TernaryOp::addcdiv,
          [](auto a, auto b, auto c) { return a + static_cast<decltype(a)>(0.3) * (b / c); });
    check(TernaryOp::clamp, [](auto a, auto b, auto c) {
      if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return static_cast<decltype(a)>(NAN);
      const auto raised = a < b ? b : a;
      return c < raised ? c : raised;
    });
  }
}

TEST(TernaryKernelTest, LerpIsExactAtBothEnds) {
  for (const DType dtype : kFloatingTypes) {
    std::vector<Array> input = random_arrays(dtype, {dtype, dtype}, 55);
    fill_range(input[1], 55, -1e4, 1e4);
    fill_range(input[2], 56, -1, 1);
    for (const int end : {0, 1}) {
      const std::vector<Array> arrays = run_everywhere(
          input,
          [&](const Target& target, const std::vector<TensorRef>& t) {
            kernels::ternary(target, TernaryOp::lerp, t[0], t[1], t[2], Scalar(end));
          },
          "lerp");
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        ASSERT_EQ(arrays[0].value(i), arrays[1 + end].value(i)) << dtype;
      }
    }
  }
}

TEST(TernaryKernelTest, ClampsIntegersByNumbers) {
  for (const DType dtype : kIntegerTypes) {
    const std::vector<Array> arrays = run_everywhere(
        random_arrays(dtype, {dtype}, 61),
        [](const Target& target, const std::vector<TensorRef>& t) {
          kernels::ternary(target, TernaryOp::clamp, t[0], t[1], Scalar(1), Scalar(5));
        },
        "clamp");
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      if constexpr (!kIsFloating<T>) {
        for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
          const std::int64_t x = arrays[1].get<T>(i);
          ASSERT_EQ(std::int64_t{arrays[0].get<T>(i)},
                    std::min<std::int64_t>(std::max<std::int64_t>(x, 1), 5))
              << x;
        }
      }
    });
  }
}

void fill_all(Array& array, double value) {
  dispatch(array.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (kIsFloating<T>) {
      for (std::int64_t i = 0; i < array.numel(); ++i) {
        if constexpr (sizeof(T) == 2) {
          array.set(i, static_cast<T>(static_cast<float>(value)));
        } else {
          array.set(i, static_cast<T>(value));
        }
      }
    }
  });
}

TEST(TernaryKernelTest, ClampsFloatsByNumbersAsByTensors) {
  const double bounds[] = {-INFINITY, -1.5, -0.0, 0.0, 1.5, INFINITY, NAN};
  for (const DType dtype : kFloatingTypes) {
    for (const double low : bounds) {
      for (const double high : bounds) {
        std::vector<Array> input = random_arrays(dtype, {dtype, dtype, dtype}, 62);
        fill_all(input[2], low);
        fill_all(input[3], high);
        const auto clamped = [&](bool by_numbers) {
          return run_everywhere(
              input,
              [&](const Target& target, const std::vector<TensorRef>& t) {
                const kernels::Operand least =
                    by_numbers ? kernels::Operand(Scalar(low)) : kernels::Operand(t[2]);
                const kernels::Operand most =
                    by_numbers ? kernels::Operand(Scalar(high)) : kernels::Operand(t[3]);
                kernels::ternary(target, TernaryOp::clamp, t[0], t[1], least, most);
              },
              "clamp");
        };
        const Array by_numbers = clamped(true)[0];
        const Array by_tensors = clamped(false)[0];
        for (std::int64_t i = 0; i < by_numbers.numel(); ++i) {
          ASSERT_EQ(by_numbers.bits(i), by_tensors.bits(i))
              << input[1].value(i) << " between " << low << " and " << high << " in " << dtype;
        }
      }
    }
  }
}

TEST(WhereKernelTest, SelectsBitsInEveryLayout) {
  const Shape sizes = {4, 5, 6};
  for (const DType dtype : kAllTypes) {
    for (const Layout& layout : testing::input_layouts(sizes)) {
      std::vector<Array> input{Array(dtype, contiguous(sizes)), Array(DType::bool_, layout),
                               Array(dtype, testing::transposed(sizes)), Array(dtype, layout)};
      for (std::size_t k = 1; k < input.size(); ++k) fill_random(input[k], 70 + k);
      const std::vector<Array> arrays = run_everywhere(
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
}  // namespace gantry::testing
