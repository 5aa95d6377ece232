// Contiguous tensors of one shape, which have a way of their own on the CPU.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using T = const Tensor&;

class DenseCallTest : public testing::PlacedTest {
 protected:
  // Calls check(a, b, strided) for contiguous tensors of whole numbers from `least` on.
  // `strided(x)` has the elements of x apart.
  template <class Check>
  void for_each_pair(int least, const Check& check) const {
    const auto strided = [](T tensor) { return stack({tensor, tensor}, -1).select(-1, 1); };
    for (const DType dtype : {f64, f32, f16, bf16, i64, u8}) {
      for (const Shape& sizes : {Shape{}, Shape{1}, Shape{3, 1, 13}}) {
        SCOPED_TRACE(::testing::Message() << dtype << " " << sizes);
        check(on(randint(least, 7, sizes)).to(dtype), on(randint(least, 4, sizes)).to(dtype),
              strided);
      }
    }
  }
};

GANTRY_TEST_PLACES(DenseCallTest);

TEST_P(DenseCallTest, ContiguousOperandsGiveWhatStridedOnesDo) {
  using Write = std::function<void(Tensor&, T, T)>;
  const std::vector<Write> operations{
      [](Tensor& out, T a, T b) { add_out(out, a, b, 2); },
      [](Tensor& out, T a, T b) { sub_out(out, a, b, 3); },
      [](Tensor& out, T a, T b) { mul_out(out, a, b); },
      [](Tensor& out, T a, T b) { remainder_out(out, a, b); },
      [](Tensor& out, T a, T b) { pow_out(out, a, b); },
      [](Tensor& out, T a, T b) { minimum_out(out, a, b); },
      [](Tensor& out, T a, T b) { maximum_out(out, a, b); },
      [](Tensor& out, T a, T) { mul_out(out, a, 3); },
  };
  for_each_pair(1, [&](T a, T b, const auto& strided) {
    for (const Write& write : operations) {
      Tensor expected = strided(a);
      write(expected, strided(a), strided(b));
      Tensor apart = empty_like(a);
      write(apart, a, b);
      EXPECT_TRUE(equal(apart, expected));
      Tensor left = a.clone();
      write(left, left, b);
      EXPECT_TRUE(equal(left, expected));
      Tensor right = b.clone();
      write(right, a, right);
      EXPECT_TRUE(equal(right, expected));
    }
  });
}

TEST_P(DenseCallTest, ContiguousComparisonsAndFunctionsGiveWhatStridedOnesDo) {
  using Operation = std::function<Tensor(T, T)>;
  const std::vector<Operation> operations{
      [](T a, T b) { return a > b; },    [](T a, T b) { return eq(a, b); },
      [](T a, T) { return a >= 3; },     [](T a, T b) { return logical_and(a, b); },
      [](T a, T) { return -a; },         [](T a, T) { return a.exp(); },
      [](T a, T) { return a.square(); }, [](T a, T) { return a.round(); },
      [](T a, T) { return a.relu(); },   [](T a, T b) { return logical_xor(a, b); },
  };
  for_each_pair(0, [&](T a, T b, const auto& strided) {
    for (const Operation& operation : operations) {
      const Tensor result = operation(a, b);
      const Tensor expected = operation(strided(a), strided(b));
      EXPECT_EQ(result.dtype(), expected.dtype());
      EXPECT_EQ(result.sizes(), a.sizes());
      EXPECT_TRUE(equal(result, expected));
    }
  });
}

// Memory of one operand as the output: the same elements, or only some of them.
TEST_P(DenseCallTest, ContiguousOutputsMayNotOverlapOperandsInPart) {
  const Tensor memory = on(arange(0, 40, 1, {.dtype = f32}));
  const Tensor before = memory.clone();
  const Tensor a = memory.narrow(0, 4, 16);
  const Tensor other = on(ones({16}));
  for (const std::int64_t shift : {-15, -1, 1, 15}) {
    Tensor out = memory.narrow(0, 4 + shift < 0 ? 0 : 4 + shift, 16);
    EXPECT_ERROR(exp_out(out, a), InvalidArgument, "refer to a single memory location");
    EXPECT_ERROR(mul_out(out, other, a), InvalidArgument, "refer to a single memory location");
  }
  // Bytes of the operand's elements.
  Tensor bits = memory.view(u8).view(bool_).narrow(0, 16, 16);
  EXPECT_ERROR(gt_out(bits, a, other), InvalidArgument, "refer to a single memory location");
  EXPECT_TRUE(equal(memory, before));
  Tensor next = memory.narrow(0, 20, 16);
  exp_out(next, a);
  EXPECT_TRUE(equal(next, a.exp()));
}

}  // namespace
}  // namespace gantry
