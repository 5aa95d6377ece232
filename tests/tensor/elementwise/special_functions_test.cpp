#include <gantry/tensor/special_functions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/activations.hpp>
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi;

const std::vector<double>& samples() {
  static const std::vector<double> values{
      0.0,  -0.0, 1.0,  -1.0, 0.5,    -0.5,  0.25,  2.0,  -2.0,   3.0,  -3.0,  0.1,
      -0.1, 7.5,  -7.5, 20.0, -20.0,  25.0,  -25.0, 1e-4, -1e-4,  90.0, -90.0, 1e4,
      -1e4, 0.99, -0.9, 1.01, 1.0e-7, -6e-8, 5.5,   -5.5, 1234.5, kInf, -kInf, kNan};
  return values;
}

// The distance between neighbours of `value` in a dtype of `bits` bits of precision.
double spacing(double value, int bits, double smallest) {
  const double magnitude = std::abs(value);
  if (magnitude == 0) return smallest;
  return std::max(std::ldexp(1.0, std::ilogb(magnitude) + 1 - bits), smallest);
}

// Each result is at most one neighbour away from the exact value, which is the rounded result of
// the host's f64 function.
void expect_close(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const DType dtype = actual.dtype();
  const int bits = dtype == f64 ? 53 : dtype == f32 ? 24 : dtype == f16 ? 11 : 8;
  const double smallest = dtype == f64 ? 5e-324 : dtype == f16 ? 6e-8 : 1e-45;
  const int allowed = dtype == f64 ? 64 : 1;
  const std::vector<double> a = actual.to_vector<double>();
  const std::vector<double> e = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(e[i])) {
      EXPECT_TRUE(std::isnan(a[i])) << i << ": " << a[i];
    } else if (std::isinf(e[i]) || e[i] == 0) {
      EXPECT_EQ(a[i], e[i]) << i;
      EXPECT_EQ(std::signbit(a[i]), std::signbit(e[i])) << i;
    } else {
      EXPECT_LE(std::abs(a[i] - e[i]), allowed * spacing(e[i], bits, smallest))
          << i << ": " << a[i] << " instead of " << e[i];
    }
  }
}

struct UnaryCase {
  std::string name;
  std::function<Tensor(const Tensor&)> function;
  std::function<Tensor&(Tensor&, const Tensor&)> with_out;
  std::function<double(double)> oracle;
};

#define GANTRY_CASE(name, oracle)                                                           \
  UnaryCase {                                                                               \
#name, [](const Tensor& t) { return name(t); },                                           \
        [](Tensor& out, const Tensor& t) -> Tensor& { return name##_out(out, t); }, [](double x) { return oracle; } \
  }

std::vector<UnaryCase> real_functions() {
  return {GANTRY_CASE(asinh, std::asinh(x)),
          GANTRY_CASE(acosh, std::acosh(x)),
          GANTRY_CASE(atanh, std::atanh(x)),
          GANTRY_CASE(erfc, std::erfc(x)),
          GANTRY_CASE(exp2, std::exp2(x)),
          GANTRY_CASE(sinc, x == 0 ? 1 : std::sin(kPi * x) / (kPi * x))};
}

std::vector<UnaryCase> activations() {
  const auto elu_of = [](double x, double alpha, double scale, double input_scale) {
    return x > 0 ? scale * x : scale * alpha * std::expm1(input_scale * x);
  };
  return {
      GANTRY_CASE(log_sigmoid, (x < 0 ? x : 0) - std::log1p(std::exp(-std::abs(x)))),
      GANTRY_CASE(softplus, x > 20 ? x : std::log1p(std::exp(x))),
      {"softplus(2, 5)", [](const Tensor& t) { return softplus(t, 2, 5); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return softplus_out(out, t, 2, 5); },
       [](double x) { return 2 * x > 5 ? x : std::log1p(std::exp(2 * x)) / 2; }},
      {"elu(2, 3, 0.5)", [](const Tensor& t) { return elu(t, 2, 3, 0.5); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return elu_out(out, t, 2, 3, 0.5); },
       [=](double x) { return elu_of(x, 2, 3, 0.5); }},
      {"celu(2)", [](const Tensor& t) { return celu(t, 2); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return celu_out(out, t, 2); },
       [=](double x) { return elu_of(x, 2, 1, 0.5); }},
      {"selu", [](const Tensor& t) { return selu(t); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return selu_out(out, t); },
       [=](double x) { return elu_of(x, 1.6732632423543772, 1.0507009873554805, 1); }},
      {"hardtanh", [](const Tensor& t) { return hardtanh(t); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return hardtanh_out(out, t); },
       [](double x) { return x < -1  ? -1
                             : x > 1 ? 1
                                     : x; }},
      {"relu6", [](const Tensor& t) { return relu6(t); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return relu6_out(out, t); },
       [](double x) { return x < 0   ? 0
                             : x > 6 ? 6
                                     : x; }},
      {"leaky_relu(0.25)", [](const Tensor& t) { return leaky_relu(t, 0.25); },
       [](Tensor& out, const Tensor& t) -> Tensor& { return leaky_relu_out(out, t, 0.25); },
       [](double x) { return x > 0 ? x : 0.25 * x; }},
  };
}
#undef GANTRY_CASE

Tensor expected_of(const UnaryCase& row, const Tensor& input) {
  std::vector<double> values = input.to_vector<double>();
  for (double& value : values) value = row.oracle(value);
  return tensor(values, f64).to(input.dtype());
}

class SpecialFunctionsTest : public testing::PlacedTest {
 protected:
  // All samples as `dtype`; of 16-bit types those that are finite in it.
  Tensor input(DType dtype) const { return on(tensor(samples(), f64).to(dtype)); }
  Tensor doubles(const std::vector<double>& values) const { return on(tensor(values, f64)); }
};

GANTRY_TEST_PLACES(SpecialFunctionsTest);

TEST_P(SpecialFunctionsTest, AgreeWithTheScalarFunctions) {
  std::vector<UnaryCase> rows = real_functions();
  for (const UnaryCase& row : activations()) rows.push_back(row);
  for (const UnaryCase& row : rows) {
    for (const DType dtype : {f16, bf16, f32, f64}) {
      SCOPED_TRACE(::testing::Message() << row.name << " of " << dtype);
      const Tensor x = input(dtype);
      const Tensor expected = expected_of(row, x);
      expect_close(row.function(x), expected);
      Tensor out = on(zeros({static_cast<int64_t>(samples().size())}, dtype));
      EXPECT_EQ(&row.with_out(out, x), &out);
      expect_close(out, expected);
      // A strided input, and the input as output.
      const Tensor spread = on(zeros({x.numel(), 3}, dtype));
      spread.select(1, 1).copy_(x);
      Tensor column = spread.select(1, 1);
      row.with_out(column, column);
      expect_close(column, expected);
      EXPECT_EQ(spread.select(1, 0).count_nonzero().item<int>(), 0);
    }
  }
}

TEST_P(SpecialFunctionsTest, IntegersBecomeFloats) {
  const Tensor ints = on(tensor({0, 1, 2, -3}));
  for (const UnaryCase& row : real_functions()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.function(ints).dtype(), f32);
    expect_close(row.function(ints), expected_of(row, ints.to(f32)));
  }
  expect_close(deg2rad(on(tensor({180, 90}))), tensor({kPi, kPi / 2}, f32));
  expect_close(rad2deg(on(tensor({1.0, -kPi}, f64))), tensor({180 / kPi, -180.0}, f64));
  EXPECT_EQ(rad2deg(on(ones({1}, f16))).item<float>(), 57.28125f);
}

TEST_P(SpecialFunctionsTest, TestsOfSignsRefuseUndefinedTensors) {
  const Tensor none;
  EXPECT_ERROR(signbit(none), InvalidArgument, "signbit: expected a defined tensor");
  EXPECT_ERROR(isposinf(none), InvalidArgument, "isposinf: expected a defined tensor");
  EXPECT_ERROR(isneginf(none), InvalidArgument, "isneginf: expected a defined tensor");
}

TEST_P(SpecialFunctionsTest, ActivationsRefuseIntegers) {
  const Tensor ints = on(tensor({1, -2}));
  EXPECT_ERROR(softplus(ints), DTypeError, "softplus: expected a floating type");
  EXPECT_ERROR(leaky_relu(ints), DTypeError, "leaky_relu: expected");
  EXPECT_ERROR(elu(ints), DTypeError, "elu: expected");
  EXPECT_ERROR(log_sigmoid(ints), DTypeError, "log_sigmoid: expected");
  EXPECT_ERROR(celu(on(ones({1})), 0), InvalidArgument, "celu: expected alpha other than 0");
  EXPECT_ERROR(hardtanh(ints > 0), DTypeError, "hardtanh: expected a tensor of numbers");
  EXPECT_ERROR(hardtanh(ints, 2, 1), InvalidArgument, "hardtanh: expected low of at most high");
  EXPECT_THAT(hardtanh(ints).to_vector<int>(), ElementsAre(1, -1));
  EXPECT_THAT(relu6(on(tensor({-1, 7, 3}))).to_vector<int>(), ElementsAre(0, 6, 3));
  EXPECT_THAT(relu6(on(tensor({255, 3}).to(u8))).to_vector<int>(), ElementsAre(6, 3));
}

TEST_P(SpecialFunctionsTest, TestsOfSignsAndInfinities) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = on(tensor({-0.0, 0.0, 1.0, -1.0, kInf, -kInf, kNan}, f64).to(dtype));
    EXPECT_THAT(signbit(x).slice(0, 0, 6).to_vector<bool>(),
                ElementsAre(true, false, false, true, false, true));
    EXPECT_THAT(signbit(on(full({1}, -1, dtype)).mul(x[6].abs())).numel(), 1);
    EXPECT_THAT(isposinf(x).to_vector<bool>(),
                ElementsAre(false, false, false, false, true, false, false));
    EXPECT_THAT(isneginf(x).to_vector<bool>(),
                ElementsAre(false, false, false, false, false, true, false));
  }
  const Tensor ints = on(tensor({-1, 0, 1}));
  EXPECT_THAT(signbit(ints).to_vector<bool>(), ElementsAre(true, false, false));
  EXPECT_THAT(signbit(ints > 0).to_vector<bool>(), ElementsAre(false, false, false));
  EXPECT_THAT(isposinf(ints).to_vector<bool>(), ElementsAre(false, false, false));
  EXPECT_THAT(isneginf(ints > 0).to_vector<bool>(), ElementsAre(false, false, false));
  Tensor out = on(ones({3}));
  isposinf_out(out, ints);
  EXPECT_THAT(out.to_vector<float>(), ElementsAre(0, 0, 0));
}

struct BinaryCase {
  std::string name;
  std::function<Tensor(const Operand&, const Operand&)> function;
  std::function<Tensor&(Tensor&, const Operand&, const Operand&)> with_out;
  std::function<double(double, double)> oracle;
};

#define GANTRY_CASE(name, expression)                                                     \
  BinaryCase {                                                                            \
#name, [](const Operand& a, const Operand& b) { return name(a, b); },                   \
        [](Tensor& out, const Operand& a, const Operand& b) -> Tensor& {                    \
          return name##_out(out, a, b);                                                     \
        },                                                                                  \
        [](double a, double b) { return expression; } \
  }

std::vector<BinaryCase> binary_functions() {
  const auto with_infinity = [](double a, double b, auto rest) {
    return std::isinf(a) && a == b ? a : std::max(a, b) + rest(std::abs(a - b));
  };
  return {
      {"logaddexp", [](const Operand& a, const Operand& b) { return logaddexp(a, b); },
       [](Tensor& out, const Operand& a, const Operand& b) -> Tensor& {
         return logaddexp_out(out, a, b);
       },
       [=](double a, double b) {
         return with_infinity(a, b, [](double d) { return std::log1p(std::exp(-d)); });
       }},
      {"logaddexp2", [](const Operand& a, const Operand& b) { return logaddexp2(a, b); },
       [](Tensor& out, const Operand& a, const Operand& b) -> Tensor& {
         return logaddexp2_out(out, a, b);
       },
       [=](double a, double b) {
         return with_infinity(
             a, b, [](double d) { return std::numbers::log2e * std::log1p(std::exp2(-d)); });
       }},
      GANTRY_CASE(hypot, std::hypot(a, b)),
      GANTRY_CASE(xlogy, a == 0 && !std::isnan(b) ? 0 : a * std::log(b)),
      GANTRY_CASE(copysign, std::copysign(a, b)),
      GANTRY_CASE(ldexp, a * std::exp2(b)),
  };
}
#undef GANTRY_CASE

// Also of a NaN: as an element, a 0-dim tensor here or on the CPU, and a number.
TEST_P(SpecialFunctionsTest, CopysignTakesEverySign) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor ones = on(gantry::ones({3}, dtype));
    for (const double value : {kNan, -kNan, 0.0, -0.0, kInf, -kInf, 5.0, -5.0, 1e-300, -1e-300}) {
      SCOPED_TRACE(::testing::Message() << dtype << " " << value);
      // A NaN has its sign bit set by hand, because conversions drop it.
      const DType bits = dtype == f64 ? i64 : dtype == f32 ? i32 : i16;
      const Tensor sign_bit = full({1}, std::signbit(value) ? -0.0 : 0.0, dtype).view(bits);
      const Tensor sign = full({1}, value, dtype).view(bits).bitwise_or(sign_bit).view(dtype);
      const std::vector<double> expected(3, std::signbit(value) ? -1 : 1);
      // GPUs convert an f16 NaN without its sign.
      if (dtype != f16 || !std::isnan(value) || platform() != Platform::cuda || !GetParam()) {
        EXPECT_EQ(copysign(ones, on(sign)).to_vector<double>(), expected);
        EXPECT_EQ(copysign(ones, on(sign).select(0, 0)).to_vector<double>(), expected);
      }
      EXPECT_EQ(copysign(ones, sign.select(0, 0)).to_vector<double>(), expected);
      EXPECT_EQ(copysign(ones, value).to_vector<double>(), expected);
    }
  }
}

TEST_P(SpecialFunctionsTest, PairsAgreeWithTheScalarFunctions) {
  for (const BinaryCase& row : binary_functions()) {
    for (const DType dtype : {f16, bf16, f32, f64}) {
      SCOPED_TRACE(::testing::Message() << row.name << " of " << dtype);
      const Tensor a = input(dtype).unsqueeze(1);
      const Tensor b = input(dtype);
      const std::vector<double> left = a.to_vector<double>();
      std::vector<double> expected;
      for (const double x : left) {
        for (const double y : left) {
          expected.push_back(row.oracle(x, y));
        }
      }
      const int64_t n = b.numel();
      const Tensor oracle = tensor(expected, f64).to(dtype).view({n, n});
      expect_close(row.function(a, b), oracle);
      Tensor out = on(zeros({n, n}, dtype));
      row.with_out(out, a, b);
      expect_close(out, oracle);
      // A number, on either side.
      expect_close(row.function(a.squeeze(), 0.5), oracle.select(1, 4));
      expect_close(row.function(0.5, b), oracle.select(0, 4));
    }
  }
}

TEST_P(SpecialFunctionsTest, PairsPromote) {
  const Tensor ints = on(tensor({3, 0}));
  EXPECT_THAT(xlogy(ints, ints).to_vector<float>(),
              ElementsAre(static_cast<float>(3 * std::log(3.0)), 0));
  EXPECT_THAT(copysign(ints, on(tensor({-4, 1}))).to_vector<float>(), ElementsAre(-3, 0));
  EXPECT_THAT(ldexp(ints, ints).to_vector<float>(), ElementsAre(24, 0));
  EXPECT_THAT(hypot(ints, on(tensor({4.0, 1.0}))).to_vector<float>(), ElementsAre(5, 1));
  EXPECT_ERROR(hypot(ints, ints), DTypeError, "hypot: expected operands of a floating type");
  EXPECT_ERROR(logaddexp(ints, ints), DTypeError, "logaddexp: expected operands of a floating");
  EXPECT_ERROR(logaddexp2(ints, 1), DTypeError, "logaddexp2: expected operands of a floating");
  EXPECT_ERROR(nextafter(ints, ints), DTypeError, "nextafter: expected operands of a floating");
  EXPECT_EQ(float_power(ints, 2).dtype(), f64);
  EXPECT_THAT(float_power(ints, 2).to_vector<double>(), ElementsAre(9, 0));
  EXPECT_THAT(float_power(ints, -1).to_vector<double>(), ElementsAre(1.0 / 3, kInf));
  EXPECT_THAT(float_power(2, ints.to(f16)).to_vector<double>(), ElementsAre(8, 1));
  // Larger than f32.
  EXPECT_THAT(float_power(on(full({1}, 1e30)), 2).to_vector<double>(),
              ElementsAre(static_cast<double>(1e30f) * 1e30f));
  EXPECT_EQ(ldexp(on(full({1}, 1e-40)), 200).item<float>(), std::ldexp(1e-40f, 200));
}

TEST_P(SpecialFunctionsTest, NextafterStepsThroughNeighbours) {
  const std::vector<double> ends{-kInf, -2, -0.0, 0.0, 1, 3, kInf, kNan};
  for (const double a : samples()) {
    for (const double b : ends) {
      const Tensor wide = nextafter(doubles({a}), doubles({b}));
      const Tensor narrow = nextafter(doubles({a}).to(f32), doubles({b}).to(f32));
      const double expected = std::nextafter(a, b);
      const float expected32 = std::nextafterf(static_cast<float>(a), static_cast<float>(b));
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(wide.item<double>()) && std::isnan(narrow.item<float>()));
      } else {
        EXPECT_EQ(wide.item<double>(), expected) << a << ' ' << b;
        EXPECT_EQ(narrow.item<float>(), expected32) << a << ' ' << b;
      }
    }
  }
  // All 16-bit numbers, in order.
  for (const DType dtype : {f16, bf16}) {
    const int top = dtype == f16 ? 0x7c00 : 0x7f80;  // infinity
    const Tensor positive = on(arange(top + 1, i16)).view(dtype);
    const Tensor upward = nextafter(positive.slice(0, 0, top), kInf);
    EXPECT_TRUE(upward.view(i16).equal(on(arange(1, top + 1, i16))));
    const Tensor downward = nextafter(positive.slice(0, 1), -kInf);
    EXPECT_TRUE(downward.view(i16).equal(on(arange(top, i16))));
    EXPECT_TRUE(nextafter(-positive.slice(0, 0, top), -kInf).equal(-upward));
    EXPECT_EQ(nextafter(positive.slice(0, 0, 1), -1.0).view(i16).item<int>(), -32767);
    EXPECT_TRUE(nextafter(positive, positive).equal(positive));
  }
}

TEST_P(SpecialFunctionsTest, HeavisideStepsAtZero) {
  const Tensor x = on(tensor({kNan, -1.0, -0.0, 0.0, 2.0}));
  for (const DType dtype : {f16, bf16, f32, f64}) {
    EXPECT_THAT(heaviside(x.to(dtype), on(full({1}, 0.5, dtype))).to_vector<float>(),
                ElementsAre(0, 0, 0.5f, 0.5f, 1));
  }
  for (const DType dtype : {i8, i16, i32, i64}) {
    EXPECT_THAT(
        heaviside(on(tensor({1, 0, -1}).to(dtype)), on(full({1}, 5, dtype))).to_vector<int>(),
        ElementsAre(1, 5, 0));
  }
  EXPECT_THAT(heaviside(on(tensor({true, false})), on(tensor({true}))).to_vector<bool>(),
              ElementsAre(true, true));
  EXPECT_ERROR(heaviside(x, on(tensor({1}))), DTypeError,
               "heaviside: expected self and values of one dtype, but got Float and Long");
}

TEST_P(SpecialFunctionsTest, BadOutputsChangeNothing) {
  Tensor ints = on(arange(3));
  Tensor floats = on(ones({3}));
  Tensor shorter = on(zeros({2}));
  EXPECT_ERROR(asinh_out(ints, ints), DTypeError, "asinh: result type Float can't be cast");
  EXPECT_ERROR(hypot_out(shorter, floats, floats), ShapeError, "hypot: output with shape [2]");
  EXPECT_ERROR(softplus_out(shorter, floats), ShapeError, "softplus: output with shape [2]");
  EXPECT_ERROR(float_power_out(ints, ints, 2), DTypeError, "float_power: result type Double");
  Tensor front = floats.slice(0, 0, 2);
  EXPECT_ERROR(erfc_out(front, floats.slice(0, 1, 3)), InvalidArgument, "refer to a single");
  EXPECT_ERROR(sinc(Tensor()), InvalidArgument, "sinc: expected a defined tensor");
  EXPECT_ERROR(xlogy(1, 2), InvalidArgument, "xlogy: expected at least one tensor");
  EXPECT_THAT(ints.to_vector<int>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(shorter.to_vector<int>(), ElementsAre(0, 0));
  EXPECT_EQ(exp2(on(zeros({0, 3}))).sizes(), (Shape{0, 3}));
}

TEST_P(SpecialFunctionsTest, AliasesAreTheOperationsThatTheyName) {
  const Tensor x = on(tensor({-1.5, 0.0, 2.25}));
  const Tensor m = on(arange(6)).view({2, 3});
  EXPECT_TRUE(absolute(x).equal(abs(x)));
  EXPECT_TRUE(sgn(x).equal(sign(x)));
  EXPECT_TRUE(fix(x).equal(trunc(x)));
  EXPECT_TRUE(true_divide(m, 2).equal(div(m, 2)));
  EXPECT_THAT(rsub(on(tensor({1})), 5, 2).to_vector<int>(), ElementsAre(3));
  EXPECT_THAT(clamp_min(x, 0).to_vector<float>(), ElementsAre(0, 0, 2.25f));
  EXPECT_THAT(clamp_max(x, on(tensor({0.0, -1.0, 9.0}))).to_vector<float>(),
              ElementsAre(-1.5f, -1, 2.25f));
  EXPECT_TRUE(positive(x).is_view_of(x));
  EXPECT_ERROR(positive(m > 1), DTypeError, "positive: The `+` operator, on a bool tensor");
  EXPECT_EQ(view_as(m, on(zeros({3, 2}))).sizes(), (Shape{3, 2}));
  EXPECT_TRUE(view_as(m, on(zeros({6}))).is_view_of(m));
  EXPECT_TRUE(reshape_as(m.t(), on(zeros({6}))).equal(m.t().reshape({6})));
  EXPECT_EQ(swapaxes(m, 0, 1).sizes(), (Shape{3, 2}));
  EXPECT_EQ(swapdims(m, 0, -1).strides(), m.t().strides());
  EXPECT_TRUE(ravel(m).is_view_of(m));
  EXPECT_TRUE(ravel(m.t()).equal(on(tensor({0, 3, 1, 4, 2, 5}))));
  EXPECT_TRUE(is_floating_point(x) && !is_floating_point(m));
  Tensor out = on(zeros({3}));
  EXPECT_TRUE(clamp_min_out(out, x, 1).equal(clamp(x, 1)));
  EXPECT_TRUE(rsub_out(out, x, 1).equal(1 - x));
  EXPECT_TRUE(absolute_out(out, x).equal(abs(x)));
  EXPECT_TRUE(true_divide_out(out, x, 2).equal(x / 2));
}

}  // namespace
}  // namespace gantry
