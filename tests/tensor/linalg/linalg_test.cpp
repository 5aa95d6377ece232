#include <gantry/tensor/linalg.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include <gantry/core/error.hpp>
#include <gantry/tensor/activations.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

class LinalgTest : public testing::PlacedTest {
 protected:
  Tensor numbers(const Shape& sizes, DType dtype = f32) const {
    return arange(sizes.product(), options(dtype)).view(sizes);
  }
  Tensor random(const Shape& sizes, DType dtype = f64) const {
    return randn(sizes, {.dtype = dtype}).to(*options().device);
  }
};

// The product by the definition: broadcast, multiply, sum.
Tensor by_definition(const Tensor& a, const Tensor& b) {
  return a.unsqueeze(-1).mul(b.unsqueeze(-3)).sum(-2);
}

TEST_P(LinalgTest, MatmulFollowsTheDimsOfItsOperands) {
  const Tensor vector = numbers({3});
  const Tensor matrix = numbers({2, 3});
  EXPECT_EQ(matmul(vector, vector).item<float>(), 5);
  EXPECT_EQ(matmul(vector, vector).sizes(), Shape{});
  EXPECT_THAT(matmul(matrix, vector).to_vector<float>(), ElementsAre(5, 14));
  EXPECT_THAT(matmul(vector, matrix.t()).to_vector<float>(), ElementsAre(5, 14));
  EXPECT_THAT(matmul(matrix, matrix.t()).to_vector<float>(), ElementsAre(5, 14, 14, 50));
  const Tensor batch = numbers({4, 2, 3});
  EXPECT_EQ(matmul(batch, vector).sizes(), Shape({4, 2}));
  EXPECT_EQ(matmul(numbers({2}), batch).sizes(), Shape({4, 3}));
  EXPECT_EQ(matmul(batch, numbers({3, 5})).sizes(), Shape({4, 2, 5}));
  EXPECT_EQ(matmul(numbers({7, 2}), batch).sizes(), Shape({4, 7, 3}));
  EXPECT_EQ(matmul(matrix, matrix.t()).device(), matrix.device());
}

TEST_P(LinalgTest, MatmulBroadcastsBatches) {
  const Shape cases[][2] = {{{2, 3}, {3, 4}},          {{5, 2, 3}, {5, 3, 4}},
                            {{5, 2, 3}, {3, 4}},       {{2, 3}, {5, 3, 4}},
                            {{6, 1, 2, 3}, {5, 3, 4}}, {{1, 5, 2, 3}, {6, 1, 3, 4}},
                            {{0, 2, 3}, {3, 4}},       {{2, 3}, {0, 3, 4}}};
  for (const auto& [left, right] : cases) {
    const Tensor a = random(left);
    const Tensor b = random(right);
    EXPECT_TRUE(matmul(a, b).allclose(by_definition(a, b), 1e-12, 1e-12)) << left << right;
    const Tensor a_strided = a.transpose(-1, -2).contiguous().transpose(-1, -2);
    const Tensor b_strided = b.transpose(-1, -2).contiguous().transpose(-1, -2);
    EXPECT_TRUE(matmul(a_strided, b_strided).allclose(by_definition(a, b), 1e-12, 1e-12));
  }
}

TEST_P(LinalgTest, AnEmptyInnerDimGivesZeros) {
  EXPECT_THAT(matmul(zeros({2, 0}, options()), zeros({0, 2}, options())).to_vector<float>(),
              ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(dot(zeros({0}, options()), zeros({0}, options())).item<float>(), 0);
}

TEST_P(LinalgTest, MatmulRejectsShapesThatDoNotFit) {
  EXPECT_THAT(message_of<ShapeError>([&] {
                (void)mm(numbers({2, 3}), numbers({5, 4}));
              }),
              HasSubstr("mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                (void)matmul(numbers({2, 3}), numbers({5, 4}));
              }),
              HasSubstr("mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)"));
  EXPECT_THAT(
      message_of<ShapeError>([&] {
        (void)matmul(numbers({3, 2, 3}), numbers({2, 3, 4}));
      }),
      HasSubstr("The size of tensor a (3) must match the size of tensor b (2) at non-singleton "
                "dimension 0"));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)matmul(numbers({}), numbers({2})); }),
              HasSubstr("both arguments to matmul need to be at least 1D, but they are 0D and 1D"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                (void)mm(numbers({2}), numbers({2, 2}));
              }),
              HasSubstr("mm: self must be a matrix, but got 1-D"));
  EXPECT_THAT(message_of<ShapeError>([&] {
                (void)bmm(numbers({2, 2, 3}), numbers({2, 4, 3}));
              }),
              HasSubstr("Expected size for first two dimensions of batch2 tensor to be: [2, 3] but "
                        "got: [2, 4]."));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)dot(numbers({2}), numbers({3})); }),
              HasSubstr("inconsistent tensor size, expected tensor [2] and src [3] to have the "
                        "same number of elements, but got 2 and 3 elements respectively"));
}

TEST_P(LinalgTest, RejectsMixedAndIntegerDTypes) {
  EXPECT_THAT(message_of<DTypeError>([&] {
                (void)mm(numbers({2, 2}), numbers({2, 2}, f64));
              }),
              HasSubstr("expected m1 and m2 to have the same dtype, but got: float != double"));
  EXPECT_THAT(message_of<DTypeError>([&] {
                (void)mm(numbers({2, 2}, i64), numbers({2, 2}, i64));
              }),
              HasSubstr("mm: expected tensors of a floating type, but got Long"));
}

TEST_P(LinalgTest, SmallProducts) {
  const Tensor matrix = numbers({2, 3});
  const Tensor vector = numbers({3});
  EXPECT_THAT(mv(matrix, vector).to_vector<float>(), ElementsAre(5, 14));
  EXPECT_EQ(dot(vector, vector).item<float>(), 5);
  EXPECT_EQ(dot(numbers({6}).slice(0, {}, {}, 2), vector).item<float>(), 10);
  EXPECT_THAT(outer(numbers({2}).add(1), vector).to_vector<float>(), ElementsAre(0, 1, 2, 0, 2, 4));
  EXPECT_EQ(bmm(numbers({2, 2, 3}), numbers({2, 3, 1})).sizes(), Shape({2, 2, 1}));
}

TEST_P(LinalgTest, AddmmScalesProductAndBroadcastAddend) {
  const Tensor a = numbers({2, 2});
  const Tensor bias = tensor({10.0f, 20.0f}, options());
  EXPECT_THAT(addmm(bias, a, a).to_vector<float>(), ElementsAre(12, 23, 16, 31));
  EXPECT_THAT(addmm(bias, a, a, 0.5, 2).to_vector<float>(), ElementsAre(9, 16, 17, 32));
  const Tensor nan = full({2, 2}, NAN, options());
  EXPECT_THAT(addmm(nan, a, a, 0).to_vector<float>(), ElementsAre(2, 3, 6, 11));
  EXPECT_THAT(addmv(bias, a, numbers({2})).to_vector<float>(), ElementsAre(11, 23));
  const Tensor batch = numbers({2, 2, 2});
  EXPECT_TRUE(baddbmm(bias, batch, batch).equal(bmm(batch, batch).add(bias)));
  EXPECT_THROW((void)addmm(numbers({3}), a, a), ShapeError);
  EXPECT_THROW((void)addmm(numbers({2, 2}, f64), a, a), DTypeError);
}

// activation(input weight^T + bias) by the definition, in f64.
Tensor layer(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
             Activation activation) {
  Tensor result = by_definition(input.unsqueeze(-2).to(f64), weight.t().to(f64)).squeeze({-2});
  if (bias) result = result.add(bias->to(f64));
  if (activation == Activation::relu) return result.relu();
  return activation == Activation::gelu_tanh ? gelu_tanh(result) : result;
}

// A copy whose elements are not dense.
Tensor spread(const Tensor& tensor) { return stack({tensor, tensor}, -1).select(-1, 0); }

TEST_P(LinalgTest, LinearIsALayer) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu_tanh}) {
    for (const DType dtype : {f64, f32, f16, bf16}) {
      for (const Shape& shape : {Shape{6}, Shape{5, 6}, Shape{2, 3, 6}, Shape{0, 6}, Shape{4, 0}}) {
        const Tensor input = random(shape, dtype);
        const Tensor weight = random({8, shape[shape.size() - 1]}, dtype);
        const Tensor bias = random({8}, dtype);
        for (const std::optional<Tensor>& row : {std::optional<Tensor>(), std::optional(bias)}) {
          const Tensor result = linear(input, weight, row, activation);
          const Tensor wanted = layer(input, weight, row, activation);
          EXPECT_EQ(result.dtype(), dtype);
          EXPECT_EQ(result.sizes(), wanted.sizes());
          const double tolerance = dtype == f64   ? 1e-12
                                   : dtype == f32 ? 1e-5
                                   : dtype == f16 ? 4e-3
                                                  : 3e-2;
          EXPECT_TRUE(result.to(f64).allclose(wanted, tolerance, tolerance)) << dtype << shape;
          Tensor out = empty(wanted.sizes(), options(dtype));
          EXPECT_TRUE(linear_out(out, input, weight, row, activation)
                          .to(f64)
                          .allclose(wanted, tolerance, tolerance));
          // Neither operand is dense, and the output is not.
          Shape wide_sizes = wanted.sizes();
          wide_sizes.push_back(2);
          Tensor wide = zeros(wide_sizes, options(dtype)).select(-1, 1);
          linear_out(wide, spread(input), weight.t().contiguous().t(), row, activation);
          EXPECT_TRUE(wide.to(f64).allclose(wanted, tolerance, tolerance)) << dtype << shape;
        }
      }
    }
  }
}

TEST_P(LinalgTest, AddmmActivationIsAddmmAndTheFunction) {
  const Tensor a = random({4, 3}, f32);
  const Tensor b = random({3, 6}, f32);
  for (const Tensor& self : {random({6}, f32), random({4, 6}, f32), random({4, 1}, f32)}) {
    const Tensor sum = addmm(self, a, b, 2, 3);
    EXPECT_TRUE(addmm_activation(self, a, b, Activation::none, 2, 3).equal(sum));
    EXPECT_TRUE(addmm_activation(self, a, b, Activation::relu, 2, 3).allclose(sum.relu()));
    EXPECT_TRUE(
        addmm_activation(self, a, b, Activation::gelu_tanh, 2, 3).allclose(gelu_tanh(sum), 1e-5));
  }
  Tensor self = random({4, 6}, f32);
  const Tensor wanted = addmm(self, a, b).relu();
  addmm_activation_out(self, self, a, b, Activation::relu);
  EXPECT_TRUE(self.allclose(wanted));
  const Tensor nan = full({6}, NAN, options());
  EXPECT_TRUE(addmm_activation(nan, a, b, Activation::relu, 0).allclose(mm(a, b).relu()));
  EXPECT_TRUE(addmm_activation(nan, a, b, Activation::relu).isnan().all().item<bool>());
}

TEST_P(LinalgTest, LinearRejectsOperandsThatDoNotFit) {
  const Tensor input = numbers({2, 3});
  const Tensor weight = numbers({4, 3});
  const Tensor bias = numbers({4});
  EXPECT_EQ(message_of<ShapeError>([&] {
              (void)linear(input, numbers({4, 5}));
            }),
            "linear: mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)");
  EXPECT_EQ(message_of<ShapeError>([&] { (void)linear(numbers({}), weight); }),
            "linear: expected an input of at least 1 dim, but got a 0-dim tensor");
  EXPECT_EQ(message_of<ShapeError>([&] { (void)linear(input, numbers({3})); }),
            "linear: weight must be a matrix, but got 1-D");
  EXPECT_EQ(message_of<ShapeError>([&] {
              (void)linear(input, weight, numbers({2, 4}));
            }),
            "linear: bias must be a vector, but got 2-D");
  EXPECT_THAT(message_of<ShapeError>([&] { (void)linear(input, weight, numbers({5})); }),
              HasSubstr("linear: The expanded size of the tensor (4) must match the existing size "
                        "(5) at non-singleton dimension 1"));
  EXPECT_EQ(message_of<DTypeError>([&] { (void)linear(input, weight, numbers({4}, f64)); }),
            "linear: expected m1 and m2 to have the same dtype, but got: float != double");
  EXPECT_THAT(message_of<DTypeError>([&] { (void)linear(input.to(i32), weight.to(i32)); }),
              HasSubstr("linear: expected tensors of a floating type, but got Int"));
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { (void)linear(input, weight, bias, static_cast<Activation>(9)); }),
            "linear: expected an Activation, but got 9");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              (void)addmm_activation(bias, input, weight.t(), static_cast<Activation>(3));
            }),
            "addmm_activation: expected an Activation, but got 3");
  EXPECT_THAT(message_of<InvalidArgument>([&] { (void)linear(Tensor(), weight); }),
              HasSubstr("linear: expected a defined tensor for argument 'input'"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { (void)linear(input, weight, Tensor()); }),
              HasSubstr("linear: expected a defined tensor for argument 'bias'"));
  Tensor out = full({2, 5}, 7, options());
  EXPECT_EQ(message_of<ShapeError>([&] { linear_out(out, input, weight, bias); }),
            "linear: expected an output of shape [2, 4], but got [2, 5]");
  Tensor ints = full({2, 4}, 7, options(i64));
  EXPECT_THAT(message_of<DTypeError>([&] { linear_out(ints, input, weight, bias); }),
              HasSubstr("linear: result type Float can't be cast to the desired output type Long"));
  EXPECT_TRUE(out.eq(7).all().item<bool>());
  EXPECT_TRUE(ints.eq(7).all().item<bool>());
}

TEST_P(LinalgTest, SixteenBitTypesRoundOnce) {
  for (const DType dtype : {f16, bf16}) {
    const Tensor a = random({9, 40}, dtype);
    const Tensor b = random({40, 5}, dtype);
    const Tensor exact = by_definition(a.to(f64), b.to(f64));
    EXPECT_TRUE(mm(a, b).to(f64).allclose(exact, dtype == f16 ? 2e-3 : 1.6e-2, 1e-3));
    EXPECT_EQ(mm(a, b).dtype(), dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Places, LinalgTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Device") : std::string("Cpu");
});

TEST(LinalgDeviceTest, OperandsAreOnOneDeviceWithoutExceptionForScalars) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor a = zeros({2, 2}, {.device = Device::cuda(0)});
  const Tensor b = zeros({2, 2}, {.device = Device::cuda(1)});
  EXPECT_THAT(message_of<DeviceMismatchError>([&] { (void)mm(a, b); }),
              HasSubstr("Expected all tensors to be on the same device, but found at least two "
                        "devices, cuda:0 and cuda:1!"));
  EXPECT_THAT(message_of<DeviceMismatchError>([&] { (void)addmm(zeros({}), a, a); }),
              HasSubstr("Expected all tensors to be on the same device"));
  EXPECT_THROW((void)outer(a[0], zeros({2})), DeviceMismatchError);
}

TEST_P(LinalgTest, AddmmAndOthersAreMembersWithTheirOwnNamesInErrors) {
  const Tensor m = numbers({2, 3});
  const Tensor v = numbers({3});
  EXPECT_TRUE(v.slice(0, 0, 2).addmv(m, v, 2, 3).equal(addmv(v.slice(0, 0, 2), m, v, 2, 3)));
  const Tensor batch = m.unsqueeze(0);
  EXPECT_TRUE(ones({2, 2}, options())
                  .baddbmm(batch, batch.transpose(1, 2))
                  .equal(baddbmm(ones({2, 2}, options()), batch, batch.transpose(1, 2))));
  const Tensor wrong = zeros({7}, options());
  EXPECT_EQ(message_of<ShapeError>([&] { (void)wrong.addmm(m, m.t()); }),
            "addmm: The expanded size of the tensor (2) must match the existing size (7) at "
            "non-singleton dimension 1. Target sizes: [2, 2]. Tensor sizes: [7]");
  EXPECT_THAT(message_of<ShapeError>([&] { (void)wrong.addmv(m, v); }),
              HasSubstr("addmv: The expanded size"));
  EXPECT_THAT(message_of<ShapeError>([&] { (void)wrong.baddbmm(batch, batch.transpose(1, 2)); }),
              HasSubstr("baddbmm: The expanded size"));
}

TEST_P(LinalgTest, AcceptsMoreBatchesThanAGridDimension) {
  const std::int64_t batches = 70'000;
  const Tensor each = numbers({batches, 1, 1});
  const Tensor left = each.expand({batches, 2, 3}).contiguous();
  const Tensor product = bmm(left, ones({batches, 3, 2}, options()));
  EXPECT_TRUE(product.equal(each.mul(3).expand({batches, 2, 2})));
  const Tensor shared = bmm(left, ones({3, 2}, options()).expand({batches, 3, 2}));
  EXPECT_TRUE(shared.equal(product));
}

TEST_P(LinalgTest, ErrorsNameTheDevice) {
  try {
    (void)mm(numbers({2, 3}), numbers({2, 3}));
    ADD_FAILURE() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_EQ(error.device(), options().device->str());
  }
}

}  // namespace
}  // namespace gantry
