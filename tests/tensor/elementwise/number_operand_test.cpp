// A number and a 0-dim tensor of its value give the same result, that of an element of the promoted
// type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

const std::vector<DType> kAllTypes = {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

struct Operation {
  std::string name;
  std::function<Tensor(const Operand&, const Operand&)> call;
  std::function<void(Tensor&, const Operand&, const Operand&)> out;
  bool is_test = true;  ///< the result is bool
};

#define GANTRY_OPERATION(op, is_test)                                                             \
  Operation {                                                                                     \
#op, [](const Operand& a,                                                                     \
            const Operand& b) { return gantry::op(a, b); },                                       \
                                                         [](Tensor & out, const Operand& a,       \
                                                            const Operand&                        \
                                                                b) { op##_out(out, a, b); },      \
                                                                                          is_test \
  }

const std::vector<Operation>& operations() {
  static const std::vector<Operation> kOperations = {
      GANTRY_OPERATION(eq, true),          GANTRY_OPERATION(ne, true),
      GANTRY_OPERATION(lt, true),          GANTRY_OPERATION(le, true),
      GANTRY_OPERATION(gt, true),          GANTRY_OPERATION(ge, true),
      GANTRY_OPERATION(logical_and, true), GANTRY_OPERATION(logical_or, true),
      GANTRY_OPERATION(logical_xor, true), GANTRY_OPERATION(minimum, false),
      GANTRY_OPERATION(maximum, false)};
  return kOperations;
}

std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.cpu().contiguous();
  return std::string(static_cast<const char*>(host.data()), host.nbytes());
}

// The number as an element of `dtype`, computed without the operations under test.
Tensor element_of(const Scalar& number, DType dtype) {
  if (number.category() == DTypeCategory::floating) {
    return full({}, number, {.dtype = f64}).to(dtype);
  }
  return tensor(number.to<std::int64_t>()).to(dtype);
}

std::vector<Scalar> numbers() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::int64_t kFar = std::int64_t{1} << 32;
  return {true,  false, 0,        1,         -1,        -5,         255,         256, 300,     -129,
          70000, kFar,  kFar + 3, INT64_MAX, INT64_MIN, 0.1,        -0.0,        1.5, 65519.0, 1e10,
          -1e10, 1e300, -1e300,   1e-10,     kInfinity, -kInfinity, std::nan("")};
}

// True if minimum and maximum take the number beside elements of `dtype`.
bool is_taken(const Scalar& number, DType dtype) {
  if (dtype == f16 || dtype == bf16) return true;
  return dispatch(dtype, [&]<class T>(TypeTag<T>) {
    return number.fits<T>() && (dtype != u8 || number.to<std::int64_t>() >= 0);
  });
}

// Elements that the numbers equal, overflow to or round to.
Tensor elements_of(DType dtype) {
  if (dtype == bool_) return tensor({1, 0}).to(bool_);
  if (!is_floating_point(dtype)) {
    return tensor({0, 1, 3, -1, -5, 44, 127, -128, 255}).to(dtype);
  }
  return cat({tensor(std::vector<double>{0, -0.0, 1, 0.1, 1.5, 65504, -1e10, 1e10}, f64),
              tensor(std::vector<double>{INFINITY, -INFINITY, NAN}, f64)})
      .to(dtype);
}

class NumberOperandTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(NumberOperandTest);

TEST_P(NumberOperandTest, IsAnElementOfThePromotedType) {
  for (const DType dtype : kAllTypes) {
    const Tensor t = on(elements_of(dtype));
    for (const Scalar& number : numbers()) {
      const DType common = result_type(t, number);
      const Tensor typed = element_of(number, common);
      // A 0-dim tensor of the number must not raise the promoted type.
      const DType zero_dim = is_floating_point(common) ? f64 : common == bool_ ? bool_ : i64;
      const Tensor value = element_of(number, is_floating_point(dtype) ? zero_dim : common);
      const Tensor left = t.to(common);
      const Tensor right = on(typed.expand(t.sizes()).contiguous());
      for (const Operation& op : operations()) {
        std::ostringstream label;
        label << op.name << " of " << dtype << " and " << number << ", common " << common;
        SCOPED_TRACE(label.str());
        const std::string expected = bytes_of(op.call(left, right));
        const std::string swapped = bytes_of(op.call(right, left));
        for (const Tensor& scalar : {value, on(value)}) {
          EXPECT_EQ(bytes_of(op.call(t, scalar)), expected);
          EXPECT_EQ(bytes_of(op.call(scalar, t)), swapped);
        }
        Tensor out = empty(t.sizes(), {.dtype = op.is_test ? bool_ : common, .device = device_});
        op.out(out, on(value), t);
        EXPECT_EQ(bytes_of(out), swapped);
        if (!op.is_test && !is_taken(number, common)) {
          EXPECT_ERROR(op.call(t, number), InvalidArgument, "without overflow");
          EXPECT_ERROR(op.call(number, t), InvalidArgument, "without overflow");
          EXPECT_ERROR(op.out(out, t, number), InvalidArgument, "without overflow");
          EXPECT_EQ(bytes_of(out), swapped);
          continue;
        }
        EXPECT_EQ(bytes_of(op.call(t, number)), expected);
        EXPECT_EQ(bytes_of(op.call(number, t)), swapped);
        op.out(out, t, number);
        EXPECT_EQ(bytes_of(out), expected);
        if (op.is_test || common != dtype) continue;
        Tensor in_place = t.clone();
        op.out(in_place, in_place, number);
        EXPECT_EQ(bytes_of(in_place), expected);
      }
    }
  }
}

// PyTorch's results.
TEST_P(NumberOperandTest, WrapsInIntegers) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  for (const Tensor& scalar : {tensor(-1), on(tensor(-1))}) {
    EXPECT_THAT((bytes == scalar).to_vector<bool>(), ElementsAre(true, false));
  }
  EXPECT_THAT((bytes == -1).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT((-1 == bytes).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT((bytes <= 300).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT((bytes <= tensor(300)).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT((bytes == 255.5).to_vector<bool>(), ElementsAre(false, false));
  EXPECT_THAT(minimum(bytes, tensor(-5)).to_vector<int>(), ElementsAre(251, 1));
  EXPECT_THAT(maximum(tensor(300), bytes).to_vector<int>(), ElementsAre(255, 44));
  EXPECT_THAT(logical_and(bytes, 256).to_vector<bool>(), ElementsAre(false, false));
  const Tensor small = on(tensor({-1, 5}).to(i8));
  EXPECT_THAT((small < 200).to_vector<bool>(), ElementsAre(false, false));
  const Tensor ints = on(tensor({3, -7}).to(i32));
  EXPECT_THAT((ints == (std::int64_t{1} << 32) + 3).to_vector<bool>(), ElementsAre(true, false));
}

TEST_P(NumberOperandTest, RoundsToFloatingTypes) {
  const Tensor halves = on(tensor({0.1, 2.0}).to(f16));
  EXPECT_THAT((halves == 0.1).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT((halves == tensor(0.1)).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT((halves < 70000).to_vector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(maximum(halves, 1e10).to_vector<float>(), ElementsAre(INFINITY, INFINITY));
  EXPECT_THAT((on(tensor({1.5f})) == 0.1).to_vector<bool>(), ElementsAre(false));
}

}  // namespace
}  // namespace gantry
