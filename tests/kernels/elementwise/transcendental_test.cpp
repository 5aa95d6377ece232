// Functions that no platform computes exactly: the error, and the difference between platforms.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include <gantry/device/device.hpp>

#include "kernels/elementwise/elementwise.hpp"
#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::BinaryOp;
using kernels::Target;
using kernels::UnaryOp;
using Runner = void (*)(std::vector<Array>&, const testing::KernelCall&);

struct Function {
  const char* name;
  UnaryOp op;
  double low;
  double high;
  std::function<long double(long double)> exact;
  std::uint64_t ulps = 2;     // allowed distance from the exact value
  std::uint64_t f64_gap = 2;  // allowed distance between platforms in f64
  std::uint64_t f32_gap = 2;  // the same in f32
};

std::ostream& operator<<(std::ostream& out, const Function& function) {
  return out << function.name;
}

long double normal_cdf(long double x) { return 0.5L * erfcl(-x / sqrtl(2.0L)); }

std::vector<Function> functions() {
  using L = long double;
  return {
      {"exp", UnaryOp::exp, -80, 80, [](L x) { return expl(x); }},
      {"expm1", UnaryOp::expm1, -3, 3, [](L x) { return expm1l(x); }},
      {"log", UnaryOp::log, 1e-3, 1e4, [](L x) { return logl(x); }},
      {"log2", UnaryOp::log2, 1e-3, 1e4, [](L x) { return log2l(x); }},
      {"log10", UnaryOp::log10, 1e-3, 1e4, [](L x) { return log10l(x); }},
      {"log1p", UnaryOp::log1p, -0.9, 10, [](L x) { return log1pl(x); }},
      {"sin", UnaryOp::sin, -100, 100, [](L x) { return sinl(x); }},
      {"cos", UnaryOp::cos, -100, 100, [](L x) { return cosl(x); }},
      {"tan", UnaryOp::tan, -10, 10, [](L x) { return tanl(x); }},
      {"asin", UnaryOp::asin, -1, 1, [](L x) { return asinl(x); }},
      {"acos", UnaryOp::acos, -1, 1, [](L x) { return acosl(x); }},
      {"atan", UnaryOp::atan, -20, 20, [](L x) { return atanl(x); }},
      {"sinh", UnaryOp::sinh, -10, 10, [](L x) { return sinhl(x); }},
      {"cosh", UnaryOp::cosh, -10, 10, [](L x) { return coshl(x); }},
      {"tanh", UnaryOp::tanh, -8, 8, [](L x) { return tanhl(x); }},
      {"erf", UnaryOp::erf, -4, 4, [](L x) { return erfl(x); }},
      {"sigmoid", UnaryOp::sigmoid, -30, 30, [](L x) { return 1 / (1 + expl(-x)); }, 3, 2, 0},
      {"silu", UnaryOp::silu, -30, 30, [](L x) { return x / (1 + expl(-x)); }, 3},
      // The rounding of x / sqrt(2) counts 2 z^2 times in the tail of erfc(z).
      {"gelu", UnaryOp::gelu, -4, 4, [](L x) { return x * normal_cdf(x); }, 24,
       // CUDA's erfc of f64 is itself within 5 ulp only.
       8, 0},
  };
}

class UnaryAccuracyTest : public ::testing::TestWithParam<Function> {};

TEST_P(UnaryAccuracyTest, IsCloseToTheExactValueAndEqualOnEveryPlatform) {
  const Function& function = GetParam();
  const auto call = [&](const Target& target, const std::vector<TensorRef>& t) {
    kernels::unary(target, function.op, t[0], t[1]);
  };
  for (const DType dtype : kFloatingTypes) {
    std::vector<Array> arrays{Array(dtype, contiguous({20011})), Array(dtype, contiguous({20011}))};
    fill_range(arrays[1], 17, function.low, function.high);
    std::vector<Array> on_device = arrays;
    testing::run_on_cpu(arrays, call);
    Array exact = arrays[0];
    dispatch(dtype, [&]<class T>(TypeTag<T>) {
      for (std::int64_t i = 0; i < exact.numel(); ++i) {
        const long double value = function.exact(arrays[1].value(i));
        if constexpr (sizeof(T) == 2)
          exact.set<T>(i, T(static_cast<float>(value)));
        else
          exact.set<T>(i, static_cast<T>(value));
      }
    });
    // 16-bit types compute in f32: at most the last bit differs after rounding.
    const std::uint64_t allowed = element_size(dtype) == 2 ? 1 : function.ulps;
    for (std::int64_t i = 0; i < exact.numel(); ++i) {
      ASSERT_LE(ulp_distance(arrays[0].bits(i), exact.bits(i), dtype), allowed)
          << dtype << " " << function.name << "(" << arrays[1].value(i) << ") gave "
          << arrays[0].value(i) << ", not " << exact.value(i);
    }
    if (device_count() == 0) continue;
    testing::run_on_device(on_device, call);
    const std::uint64_t gap = dtype == DType::f64   ? function.f64_gap
                              : dtype == DType::f32 ? function.f32_gap
                                                    : 2;
    for (std::int64_t i = 0; i < exact.numel(); ++i) {
      ASSERT_LE(ulp_distance(arrays[0].bits(i), on_device[0].bits(i), dtype), gap)
          << dtype << " " << function.name << "(" << arrays[1].value(i) << ") is "
          << arrays[0].value(i) << " on the CPU, but " << on_device[0].value(i) << " on the device";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, UnaryAccuracyTest, ::testing::ValuesIn(functions()),
                         [](const auto& test) { return test.param.name; });

// `number` as an element of a floating dtype of 16 or 32 bits.
void set_number(Array& array, std::int64_t i, long double number) {
  const auto value = static_cast<float>(number);
  if (array.dtype() == DType::bf16) return array.set(i, bfloat16(value));
  if (array.dtype() == DType::f16) return array.set(i, float16(value));
  array.set(i, value);
}

// Where an exponential overflows, or a result is no normal number.
TEST(ExtremeArgumentTest, CompositionsFollowTheirDefinitionOnEveryPlatform) {
  using L = long double;
  const std::vector<std::pair<UnaryOp, std::function<L(L)>>> compositions = {
      {UnaryOp::sigmoid, [](L x) { return 1 / (1 + expl(-x)); }},
      {UnaryOp::silu, [](L x) { return x / (1 + expl(-x)); }},
      {UnaryOp::gelu, [](L x) { return x * normal_cdf(x); }},
      {UnaryOp::tanh, [](L x) { return tanhl(x); }}};
  const std::vector<double> magnitudes = {0,  1e-45, 1e-40, 2e-38, 1e-30, 1e-8, 0.01,     6,
                                          13, 13.25, 14.5,  20,    80,    87.5, 88.5,     95,
                                          99, 104,   150,   1000,  6e4,   3e38, INFINITY, NAN};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto& [op, exact] : compositions) {
      for (const Runner run : {testing::run_on_cpu, testing::run_on_device}) {
        if (run == testing::run_on_device && device_count() == 0) continue;
        std::vector<Array> arrays(2, Array(dtype, contiguous({std::ssize(magnitudes) * 2})));
        for (std::int64_t i = 0; i < arrays[1].numel(); ++i) {
          const double magnitude = magnitudes[static_cast<std::size_t>(i / 2)];
          set_number(arrays[1], i, i % 2 == 0 ? magnitude : -magnitude);
        }
        Array expected = arrays[0];
        run(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::unary(target, op, t[0], t[1]);
        });
        for (std::int64_t i = 0; i < expected.numel(); ++i) {
          set_number(expected, i, exact(static_cast<L>(arrays[1].value(i))));
          if (std::isnan(expected.value(i))) {
            ASSERT_TRUE(std::isnan(arrays[0].value(i))) << dtype << " of " << arrays[1].value(i);
            continue;
          }
          ASSERT_LE(ulp_distance(arrays[0].bits(i), expected.bits(i), dtype),
                    dtype == f32 ? 3u : 1u)
              << dtype << " " << static_cast<int>(op) << " of " << arrays[1].value(i) << " is "
              << arrays[0].value(i) << ", not " << expected.value(i);
        }
      }
    }
  }
}

TEST(BinaryAccuracyTest, PowAndAtan2AreCloseToTheExactValue) {
  for (const DType dtype : kFloatingTypes) {
    for (const BinaryOp op : {BinaryOp::pow, BinaryOp::atan2}) {
      const auto call = [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, op, t[0], t[1], t[2]);
      };
      std::vector<Array> arrays(3, Array(dtype, contiguous({20011})));
      fill_range(arrays[1], 18, op == BinaryOp::pow ? 0.01 : -5, 5);
      fill_range(arrays[2], 19, -5, 5);
      std::vector<Array> on_device = arrays;
      testing::run_on_cpu(arrays, call);
      if (device_count() > 0) testing::run_on_device(on_device, call);
      Array exact = arrays[0];
      for (std::int64_t i = 0; i < exact.numel(); ++i) {
        const long double a = arrays[1].value(i);
        const long double b = arrays[2].value(i);
        const long double value = op == BinaryOp::pow ? powl(a, b) : atan2l(a, b);
        dispatch(dtype, [&]<class T>(TypeTag<T>) {
          if constexpr (sizeof(T) == 2)
            exact.set<T>(i, T(static_cast<float>(value)));
          else
            exact.set<T>(i, static_cast<T>(value));
        });
        ASSERT_LE(ulp_distance(arrays[0].bits(i), exact.bits(i), dtype), 2u) << dtype;
        if (device_count() > 0) {
          ASSERT_LE(ulp_distance(arrays[0].bits(i), on_device[0].bits(i), dtype), 2u) << dtype;
        }
      }
    }
  }
}

TEST(BinaryAccuracyTest, SpecialExponentsAreExact) {
  std::vector<Array> input(2, Array(f32, contiguous({1027})));
  fill_range(input[1], 3, 0.001, 1000);
  for (const double exponent : {2.0, 0.5, -1.0, 3.0, 4.0, -2.0}) {
    const std::vector<Array> arrays = testing::run_everywhere(
        input,
        [&](const Target& target, const std::vector<TensorRef>& t) {
          kernels::binary(target, BinaryOp::pow, t[0], t[1], Scalar(exponent));
        },
        "pow");
    for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
      const auto expected = static_cast<float>(std::pow(arrays[1].value(i), exponent));
      ASSERT_EQ(arrays[0].get<float>(i), expected) << exponent;
    }
  }
}

// A number of an integer dtype has the wrapped powers of a tensor of that number.
TEST(BinaryAccuracyTest, PowersOfIntegersByNumbersWrap) {
  for (const DType dtype : {DType::u8, DType::i16, DType::i32, DType::i64}) {
    for (const int exponent : {1, 2, 3, 4, 5}) {
      std::vector<Array> arrays(4, Array(dtype, contiguous({1027})));
      fill_range(arrays[2], 5, 0, 120);
      fill_range(arrays[3], 5, exponent, exponent);
      testing::run_on_cpu(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
        kernels::binary(target, BinaryOp::pow, t[0], t[2], Scalar(exponent));
        kernels::binary(target, BinaryOp::pow, t[1], t[2], t[3]);
      });
      for (std::int64_t i = 0; i < arrays[0].numel(); ++i) {
        ASSERT_EQ(arrays[0].bits(i), arrays[1].bits(i)) << dtype << " " << exponent;
      }
    }
  }
}

}  // namespace
}  // namespace gantry::testing
