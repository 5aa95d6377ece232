// Numbers that the dtype of an operation cannot hold: refused, in every function that takes numbers
// and would otherwise compute with another one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

// Which integers a function takes beside a u8 tensor.
enum class Takes {
  in_range,      // 0 … 255
  or_negatives,  // -255 … 255: a negative number wraps, as Scalar::fits() says
  all,           // every number wraps, as the result does
};

struct Function {
  std::string name;
  Takes takes;
  std::function<Tensor(const Tensor&, const Scalar&)> call;  // a new tensor, or one it wrote
};

#define GANTRY_TWO_OPERANDS(op, takes)                                                   \
  Function{#op, takes, [](const Tensor& t, const Scalar& n) { return op(t, n); }},       \
      Function{#op, takes, [](const Tensor& t, const Scalar& n) { return op(n, t); }},   \
      Function{#op, takes, [](const Tensor& t, const Scalar& n) { return t.op(n); }},    \
      Function{#op, takes, [](const Tensor& t, const Scalar& n) { return t.op##_(n); }}, \
      Function {                                                                         \
#op, takes, [](const Tensor& t, const Scalar& n) {                                  \
      Tensor out = empty_like(t);                                                       \
      return op##_out(out, t, n);                                                       \
    }    \
  }

// Every function that takes a number whose dtype is that of the tensor.
std::vector<Function> functions() {
  const auto index_of = [](const Tensor& t) { return tensor({0, 2}).to(t.device()); };
  const auto mask_of = [](const Tensor& t) { return t.ne(3); };
  std::vector<Function> list{GANTRY_TWO_OPERANDS(minimum, Takes::in_range),
                             GANTRY_TWO_OPERANDS(maximum, Takes::in_range),
                             GANTRY_TWO_OPERANDS(floor_divide, Takes::in_range),
                             GANTRY_TWO_OPERANDS(remainder, Takes::in_range),
                             GANTRY_TWO_OPERANDS(fmod, Takes::in_range),
                             GANTRY_TWO_OPERANDS(bitwise_left_shift, Takes::in_range),
                             GANTRY_TWO_OPERANDS(bitwise_right_shift, Takes::in_range),
                             GANTRY_TWO_OPERANDS(bitwise_and, Takes::or_negatives),
                             GANTRY_TWO_OPERANDS(bitwise_or, Takes::or_negatives),
                             GANTRY_TWO_OPERANDS(bitwise_xor, Takes::or_negatives),
                             GANTRY_TWO_OPERANDS(add, Takes::all),
                             GANTRY_TWO_OPERANDS(sub, Takes::all),
                             GANTRY_TWO_OPERANDS(mul, Takes::all)};
  const auto add = [&](std::string name, Takes takes, auto call) {
    list.push_back({std::move(name), takes, call});
  };
  using T = const Tensor&;
  using N = const Scalar&;
  add("div", Takes::in_range, [](T t, N n) { return div(t, n, RoundingMode::trunc); });
  add("div", Takes::in_range, [](T t, N n) { return div(n, t, RoundingMode::floor); });
  add("div", Takes::in_range, [](T t, N n) { return t.div_(n, "floor"); });
  add("pow", Takes::all, [](T t, N n) { return pow(n, t); });
  add("where", Takes::or_negatives, [=](T t, N n) { return where(mask_of(t), t, n); });
  add("where", Takes::or_negatives, [=](T t, N n) { return where(mask_of(t), n, t); });
  add("where", Takes::or_negatives, [=](T t, N n) { return t.where(mask_of(t), n); });
  add("where", Takes::or_negatives, [=](T t, N n) {
    Tensor out = empty_like(t);
    return where_out(out, mask_of(t), t, n);
  });
  add("minimum", Takes::in_range, [](T t, N n) { return gantry::minimum(t.view({3}), n); });
  // Numbers that are written.
  const Takes written = Takes::or_negatives;
  add("full", written, [](T t, N n) { return full({3}, n, {.dtype = t.dtype()}); });
  add("full_like", written, [](T t, N n) { return full_like(t, n); });
  add("new_full", written, [](T t, N n) { return t.new_full({3}, n); });
  add("fill_", written, [](T t, N n) { return t.fill_(n); });
  add("fill_", written, [](T t, N n) {
    t[1] = n;
    return t;
  });
  add("masked_fill", written, [=](T t, N n) { return t.masked_fill(mask_of(t), n); });
  add("masked_fill_", written, [=](T t, N n) { return t.masked_fill_(mask_of(t), n); });
  add("scatter", written, [=](T t, N n) { return scatter(t, 0, index_of(t), n); });
  add("scatter", written, [=](T t, N n) { return t.scatter_(0, index_of(t), n, "add"); });
  add("index_fill", written, [=](T t, N n) { return index_fill(t, 0, index_of(t), n); });
  add("index_fill", written, [=](T t, N n) { return t.index_fill_(0, index_of(t), n); });
  for (const bool accumulate : {false, true}) {
    add("index_put_", written,
        [=](T t, N n) { return t.index_put_({index_of(t)}, n, accumulate); });
    add("index_put_", written, [=](T t, N n) { return t.index_put_({mask_of(t)}, n, accumulate); });
    add("index_put_", written, [=](T t, N n) {
      return t.index_put_({index_of(t)}, n, accumulate).index_put_({Slice(0, 2)}, n, accumulate);
    });
  }
  // Factors.
  add("add", written, [](T t, N n) { return gantry::add(t, t, n); });
  add("add", written, [](T t, N n) { return t.add_(2, n); });
  add("sub", written, [](T t, N n) { return t.sub_(t, n); });
  add("addcmul", written, [](T t, N n) { return addcmul(t, t, t, n); });
  add("index_add", written, [=](T t, N n) {
    return index_add(t, 0, index_of(t), ones({2}, {.dtype = t.dtype(), .device = t.device()}), n);
  });
  return list;
}

class NumberRangeTest : public testing::PlacedTest {
 protected:
  // Checks that `call` refuses `number`, names it, and leaves `t` as it is.
  static void expect_refused(const Function& function, const Tensor& t, const Scalar& number) {
    const Tensor before = t.clone();
    std::ostringstream text;
    text << "value cannot be converted to type " << name(t.dtype()) << " without overflow, got "
         << number;
    const std::string error =
        testing::message_of<InvalidArgument>([&] { static_cast<void>(function.call(t, number)); });
    EXPECT_THAT(error, ::testing::EndsWith(text.str())) << function.name;
    EXPECT_TRUE(t.equal(before)) << function.name;
  }
};

GANTRY_TEST_PLACES(NumberRangeTest);

TEST_P(NumberRangeTest, BytesTakeWhatTheyHold) {
  for (const Function& function : functions()) {
    const auto fresh = [&] { return on(tensor({1, 3, 200}).to(u8)); };
    for (const Scalar& number : std::vector<Scalar>{1, 0, 255, 7, true, false}) {
      EXPECT_EQ(function.call(fresh(), number).dtype(), u8) << function.name << " " << number;
    }
    for (const Scalar& number :
         std::vector<Scalar>{256, 300, -256, std::numeric_limits<std::int64_t>::max(),
                             std::numeric_limits<std::int64_t>::lowest()}) {
      if (function.takes == Takes::all) {
        EXPECT_EQ(function.call(fresh(), number).dtype(), u8) << function.name;
      } else {
        expect_refused(function, fresh(), number);
      }
    }
    for (const Scalar& number : std::vector<Scalar>{-1, -255}) {
      if (function.takes == Takes::in_range) {
        expect_refused(function, fresh(), number);
      } else {
        EXPECT_EQ(function.call(fresh(), number).dtype(), u8) << function.name;
      }
    }
  }
}

TEST_P(NumberRangeTest, SignedIntegersTakeWhatTheyHold) {
  const auto check = [&]<class T>(T highest) {
    const DType dtype = dtype_of<T>;
    const std::int64_t last = highest;
    for (const Function& function : functions()) {
      const auto fresh = [&] { return on(tensor({1, 3, 5}).to(dtype)); };
      for (const std::int64_t number : {last, -last - 1}) {
        EXPECT_EQ(function.call(fresh(), number).dtype(), dtype) << function.name << number;
      }
      if (function.takes == Takes::all) continue;
      for (const std::int64_t number : {last + 1, -last - 2}) {
        expect_refused(function, fresh(), number);
      }
    }
  };
  check(std::numeric_limits<std::int8_t>::max());
  check(std::numeric_limits<std::int16_t>::max());
  check(std::numeric_limits<std::int32_t>::max());
}

TEST_P(NumberRangeTest, StridedAndBroadcastOperandsTakeTheSame) {
  const Tensor strided = on(tensor({1, 2, 3, 4, 5, 6}).to(u8)).view({2, 3}).t();
  EXPECT_ERROR(maximum(strided, -1), InvalidArgument,
               "maximum: value cannot be converted to type u8 without overflow, got -1");
  EXPECT_ERROR(minimum(300, strided), InvalidArgument,
               "minimum: value cannot be converted to type u8 without overflow, got 300");
  EXPECT_ERROR(strided.clone().remainder_(-3), InvalidArgument, "got -3");
  EXPECT_ERROR(strided.maximum(-1), InvalidArgument, "maximum: value");
  const Tensor row = on(tensor({1, 0, 1}).to(u8));
  EXPECT_ERROR(where(strided.gt(2), row.view({3, 1}), -256), InvalidArgument, "where: value");
}

// A 0-dim tensor is an element, which converts.
TEST_P(NumberRangeTest, ZeroDimTensorsConvert) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  for (const Tensor& far : {tensor(-1), on(tensor(-1))}) {
    EXPECT_THAT(maximum(bytes, far).to_vector<int>(), ElementsAre(255, 255));
    EXPECT_THAT(floor_divide(bytes, far).to_vector<int>(), ElementsAre(1, 0));
    EXPECT_THAT(where(bytes.gt(1), bytes, far).to_vector<int>(), ElementsAre(255, 255));
  }
}

// Comparisons convert numbers, as tensors.md says, and the category of a float promotes.
TEST_P(NumberRangeTest, ComparisonsConvertAndFloatsPromote) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  EXPECT_THAT((bytes == -1).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT((bytes <= 300).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(maximum(bytes, -1.0).to_vector<float>(), ElementsAre(255, 1));
  EXPECT_THAT(remainder(bytes, 300.0).to_vector<float>(), ElementsAre(255, 1));
  EXPECT_THAT(div(bytes, 510).to_vector<float>(), ElementsAre(0.5f, 1 / 510.0f));
}

TEST_P(NumberRangeTest, FloatsOverflowToInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {f16, bf16}) {
    const Tensor t = on(tensor({1.0, 2.0}).to(dtype));
    EXPECT_THAT(maximum(t, 1e300).to_vector<float>(), ElementsAre(kInfinity, kInfinity));
    EXPECT_THAT(minimum(t, -1e300).to_vector<float>(), ElementsAre(-kInfinity, -kInfinity));
    EXPECT_THAT(where(t.gt(1), 1e300, t).to_vector<float>(), ElementsAre(1, kInfinity));
    EXPECT_THAT(t.mul(1e300).to_vector<float>(), ElementsAre(kInfinity, kInfinity));
    EXPECT_ERROR(t.fill_(1e300), InvalidArgument, "fill_: value cannot be converted");
    EXPECT_ERROR(add(t, t, 1e300), InvalidArgument, "without overflow, got 1e+300");
    EXPECT_ERROR(lerp(t, t, 1e300), InvalidArgument, "lerp: value cannot be converted");
  }
  // Factors of f16 are numbers of f32.
  const Tensor halves = on(tensor({0.0, 0.25}).to(f16));
  EXPECT_THAT(add(halves, halves, 100'000).to_vector<float>(), ElementsAre(0, 25'008));
  EXPECT_THAT(div(halves, 100'000).to_vector<float>(),
              ElementsAre(0, static_cast<float>(float16(2.5e-6))));
  const Tensor singles = on(tensor({1.0f, 2.0f}));
  EXPECT_ERROR(maximum(singles, 1e300), InvalidArgument,
               "maximum: value cannot be converted to type f32 without overflow, got 1e+300");
  EXPECT_ERROR(where(singles.gt(1), singles, 1e300), InvalidArgument, "where: value");
  EXPECT_ERROR(addcmul(singles, singles, singles, 1e300), InvalidArgument, "addcmul: value");
  EXPECT_ERROR(addcdiv(singles, singles, singles, -1e300), InvalidArgument, "addcdiv: value");
  EXPECT_THAT(maximum(singles, kInfinity).to_vector<float>(), ElementsAre(kInfinity, kInfinity));
  EXPECT_THAT(fmod(singles, 1e300).to_vector<float>(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace gantry
