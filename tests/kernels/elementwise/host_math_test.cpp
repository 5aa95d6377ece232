// The f32 functions of the host: every exponent, special values, and equal bits in every loop.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/elementwise/special.hpp"
#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::Target;
using kernels::UnaryOp;

using Exact = std::function<long double(long double)>;

struct Function {
  const char* name;
  UnaryOp op;
  Exact exact;
  std::uint32_t limit = 1;  // ulp
};

std::ostream& operator<<(std::ostream& out, const Function& function) {
  return out << function.name;
}

std::vector<Function> functions() {
  using L = long double;
  return {
      {"exp", UnaryOp::exp, [](L x) { return expl(x); }},
      {"expm1", UnaryOp::expm1, [](L x) { return expm1l(x); }},
      {"log", UnaryOp::log, [](L x) { return logl(x); }},
      {"log2", UnaryOp::log2, [](L x) { return log2l(x); }},
      {"log10", UnaryOp::log10, [](L x) { return log10l(x); }},
      {"log1p", UnaryOp::log1p, [](L x) { return log1pl(x); }},
      {"sin", UnaryOp::sin, [](L x) { return sinl(x); }},
      {"cos", UnaryOp::cos, [](L x) { return cosl(x); }},
      {"sinh", UnaryOp::sinh, [](L x) { return sinhl(x); }},
      {"cosh", UnaryOp::cosh, [](L x) { return coshl(x); }},
      {"tanh", UnaryOp::tanh, [](L x) { return tanhl(x); }},
      {"erf", UnaryOp::erf, [](L x) { return erfl(x); }},
      {"sigmoid", UnaryOp::sigmoid, [](L x) { return 1 / (1 + expl(-x)); }},
      {"silu", UnaryOp::silu, [](L x) { return x / (1 + expl(-x)); }},
      {"gelu", UnaryOp::gelu, [](L x) { return 0.5L * x * erfcl(x * -0.70710678118654752440L); },
       2},
  };
}

// Positive and negative numbers of every exponent, with `per_exponent` mantissas each.
Array all_exponents(int per_exponent, testing::Layout (*layout)(const Shape&)) {
  constexpr std::uint32_t kExponents = 512;
  Array array(DType::f32, layout({kExponents * per_exponent}));
  std::uint32_t mantissa = 1;
  for (std::uint32_t e = 0; e < kExponents; ++e) {
    for (int k = 0; k < per_exponent; ++k) {
      mantissa = mantissa * 1664525u + 1013904223u;
      array.set<float>(e * per_exponent + k, std::bit_cast<float>(e << 23 | mantissa >> 9));
    }
  }
  return array;
}

void expect_exact(const Function& function, const Array& in, const Array& out) {
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    const auto exact = static_cast<float>(function.exact(in.get<float>(i)));
    ASSERT_LE(ulp_distance(out.bits(i), std::bit_cast<std::uint32_t>(exact), DType::f32),
              function.limit)
        << function << "(" << in.get<float>(i) << ") gave " << out.get<float>(i) << ", not "
        << exact;
  }
}

Array result_of(const Function& function, const Array& in) {
  std::vector<Array> arrays{Array(DType::f32, in.layout()), in};
  testing::run_on_cpu(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
    kernels::unary(target, function.op, t[0], t[1]);
  });
  return arrays[0];
}

class HostMathTest : public ::testing::TestWithParam<Function> {};

TEST_P(HostMathTest, IsWithinItsLimitAtEveryExponent) {
  const Array in = all_exponents(37, contiguous);
  expect_exact(GetParam(), in, result_of(GetParam(), in));
}

TEST_P(HostMathTest, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, infinity, -infinity, NAN, -NAN,
                          std::numeric_limits<float>::denorm_min(), -1e-40f,
                          std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                          // where gelu is least accurate
                          -0x1.193eaap+1f, -0x1.70472ap+0f};
  Array in(DType::f32, contiguous({std::size(values)}));
  for (int i = 0; i < in.numel(); ++i) in.set<float>(i, values[i]);
  const Array out = result_of(GetParam(), in);
  expect_exact(GetParam(), in, out);
  for (const int zero : {0, 1}) {
    const auto exact = static_cast<float>(GetParam().exact(in.get<float>(zero)));
    EXPECT_EQ(std::signbit(out.get<float>(zero)), std::signbit(exact)) << zero;
  }
}

TEST_P(HostMathTest, DenseStridedAndShortRowsHaveTheSameBits) {
  const Array dense = result_of(GetParam(), all_exponents(7, contiguous));
  const Array strided = result_of(GetParam(), all_exponents(7, sliced));
  const Array in = all_exponents(7, contiguous);
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    ASSERT_EQ(dense.bits(i), strided.bits(i)) << in.get<float>(i);
    if (i % 97 != 0) continue;
    Array one(DType::f32, contiguous({1}));
    one.set<float>(0, in.get<float>(i));
    ASSERT_EQ(dense.bits(i), result_of(GetParam(), one).bits(0)) << in.get<float>(i);
  }
}

TEST_P(HostMathTest, InPlace) {
  const Array in = all_exponents(7, contiguous);
  const Array expected = result_of(GetParam(), in);
  std::vector<Array> arrays{in};
  testing::run_on_cpu(arrays, [&](const Target& target, const std::vector<TensorRef>& t) {
    kernels::unary(target, GetParam().op, t[0], t[0]);
  });
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    ASSERT_EQ(arrays[0].bits(i), expected.bits(i)) << in.get<float>(i);
  }
}

TEST(HostPowTest, HasTheLimitsAndTheAccuracyOfC) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> numbers = {0.0f,    -0.0f,   1.0f,        -1.0f,       infinity, -infinity,
                                NAN,     2.0f,    -2.0f,       0.5f,        -0.5f,    3.0f,
                                -3.0f,   1e-45f,  -7.0f,       2.5f,        -2.5f,    1e-38f,
                                3e38f,   -3e38f,  1.0000001f,  1e9f,        -1e9f,    0.9999f,
                                126.99f, -148.9f, 16777215.0f, -16777216.0f};
  const auto n = static_cast<std::int64_t>(numbers.size());
  for (const Layout& layout : {contiguous({n, n}), testing::transposed({n, n})}) {
    std::vector<Array> arrays(3, Array(DType::f32, layout));
    for (std::int64_t i = 0; i < n * n; ++i) {
      arrays[1].set<float>(i, numbers[static_cast<std::size_t>(i / n)]);
      arrays[2].set<float>(i, numbers[static_cast<std::size_t>(i % n)]);
    }
    testing::run_on_cpu(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
      kernels::binary(target, kernels::BinaryOp::pow, t[0], t[1], t[2]);
    });
    for (std::int64_t i = 0; i < n * n; ++i) {
      const double base = arrays[1].get<float>(i);
      const auto exact = static_cast<float>(std::pow(base, arrays[2].get<float>(i)));
      const float got = arrays[0].get<float>(i);
      ASSERT_LE(ulp_distance(arrays[0].bits(i), std::bit_cast<std::uint32_t>(exact), DType::f32),
                1u)
          << base << " to the power of " << arrays[2].get<float>(i) << ": " << got;
      ASSERT_TRUE(std::isnan(exact) || std::signbit(got) == std::signbit(exact)) << base;
    }
  }
}

TEST(HostGeluTanhTest, IsWithinOneUlpAtEveryExponent) {
  const Array in = all_exponents(37, contiguous);
  std::vector<Array> arrays{Array(DType::f32, in.layout()), in};
  testing::run_on_cpu(arrays, [](const Target& target, const std::vector<TensorRef>& t) {
    kernels::special(target, kernels::SpecialOp::gelu_tanh, t[0], t[1]);
  });
  const Exact exact = [](long double x) {
    const long double u = 0.79788456080286535588L * (x + 0.044715L * x * x * x);
    return std::isinf(x) && x < 0 ? NAN : x / (1 + expl(-2 * u));
  };
  expect_exact({"gelu_tanh", UnaryOp::gelu, exact}, in, arrays[0]);
}

INSTANTIATE_TEST_SUITE_P(Functions, HostMathTest, ::testing::ValuesIn(functions()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace gantry::testing
