// The documented names of operations on tensors, each used as a program uses it.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

class DocumentedNamesOfOperations : public testing::DeviceTest {
 protected:
  const TensorOptions options_{.dtype = f32, .device = Device::cuda(0)};
};

// The function, the member, the member in place and the function with an output agree.
#define EXPECT_UNARY(op)                            \
  {                                                 \
    const Tensor expected = op(t);                  \
    EXPECT_TRUE(t.op().equal(expected));            \
    EXPECT_TRUE(t.clone().op##_().equal(expected)); \
    Tensor out = empty_like(t);                     \
    op##_out(out, t);                               \
    EXPECT_TRUE(out.equal(expected));               \
  }
#define EXPECT_BINARY(op, ...)                                 \
  {                                                            \
    const Tensor expected = op(t, __VA_ARGS__);                \
    EXPECT_TRUE(t.op(__VA_ARGS__).equal(expected));            \
    EXPECT_TRUE(t.clone().op##_(__VA_ARGS__).equal(expected)); \
    Tensor out = empty_like(t);                                \
    op##_out(out, t, __VA_ARGS__);                             \
    EXPECT_TRUE(out.equal(expected));                          \
  }
#define EXPECT_PREDICATE(op, ...)                             \
  {                                                           \
    const Tensor expected = op(t __VA_OPT__(, ) __VA_ARGS__); \
    EXPECT_EQ(expected.dtype(), bool_);                       \
    EXPECT_TRUE(t.op(__VA_ARGS__).equal(expected));           \
  }

TEST_F(DocumentedNamesOfOperations, Unary) {
  const Tensor t = tensor({0.25, 0.5, 0.75}, options_);
  EXPECT_UNARY(neg)
  EXPECT_UNARY(abs)
  EXPECT_UNARY(sign)
  EXPECT_UNARY(exp)
  EXPECT_UNARY(expm1)
  EXPECT_UNARY(log)
  EXPECT_UNARY(log2)
  EXPECT_UNARY(log10)
  EXPECT_UNARY(log1p)
  EXPECT_UNARY(sqrt)
  EXPECT_UNARY(rsqrt)
  EXPECT_UNARY(square)
  EXPECT_UNARY(reciprocal)
  EXPECT_UNARY(sin)
  EXPECT_UNARY(cos)
  EXPECT_UNARY(tan)
  EXPECT_UNARY(asin)
  EXPECT_UNARY(acos)
  EXPECT_UNARY(atan)
  EXPECT_UNARY(sinh)
  EXPECT_UNARY(cosh)
  EXPECT_UNARY(tanh)
  EXPECT_UNARY(sigmoid)
  EXPECT_UNARY(relu)
  EXPECT_UNARY(gelu)
  EXPECT_UNARY(silu)
  EXPECT_UNARY(erf)
  EXPECT_UNARY(floor)
  EXPECT_UNARY(ceil)
  EXPECT_UNARY(round)
  EXPECT_UNARY(trunc)
  EXPECT_UNARY(frac)
  EXPECT_UNARY(nan_to_num)
  EXPECT_PREDICATE(isnan)
  EXPECT_PREDICATE(isinf)
  EXPECT_PREDICATE(isfinite)
  EXPECT_PREDICATE(logical_not)
}

TEST_F(DocumentedNamesOfOperations, Binary) {
  const Tensor t = tensor({0.25, 0.5, 0.75}, options_);
  const Tensor u = tensor({2, 3, 4}, options_);
  EXPECT_BINARY(add, u)
  EXPECT_BINARY(sub, u)
  EXPECT_BINARY(mul, u)
  EXPECT_BINARY(div, u)
  EXPECT_BINARY(floor_divide, u)
  EXPECT_BINARY(remainder, u)
  EXPECT_BINARY(fmod, u)
  EXPECT_BINARY(pow, u)
  EXPECT_BINARY(pow, 2)
  EXPECT_BINARY(atan2, u)
  EXPECT_BINARY(minimum, u)
  EXPECT_BINARY(maximum, u)
  EXPECT_BINARY(clamp, 0.3, 0.6)
  EXPECT_BINARY(lerp, u, 0.5)
  EXPECT_BINARY(addcmul, u, u)
  EXPECT_BINARY(addcdiv, u, u)
  EXPECT_TRUE(t.add(u, 2).equal(t + u * 2));
  EXPECT_TRUE(t.div(u, RoundingMode::floor).equal(t.floor_divide(u)));
  EXPECT_PREDICATE(eq, u)
  EXPECT_PREDICATE(ne, u)
  EXPECT_PREDICATE(lt, u)
  EXPECT_PREDICATE(le, u)
  EXPECT_PREDICATE(gt, u)
  EXPECT_PREDICATE(ge, u)
  EXPECT_PREDICATE(logical_and, u)
  EXPECT_PREDICATE(logical_or, u)
  EXPECT_PREDICATE(logical_xor, u)
  const Tensor bits = tensor({1, 2, 3}, {.dtype = i32, .device = Device::cuda(0)});
  EXPECT_TRUE(bits.bitwise_and(1).equal(bits & 1));
  EXPECT_TRUE(bits.bitwise_or(4).equal(bits | 4));
  EXPECT_TRUE(bits.bitwise_xor(1).equal(bits ^ 1));
  EXPECT_TRUE(bits.bitwise_not().equal(~bits));
  EXPECT_TRUE(bits.bitwise_left_shift(1).equal(bits << 1));
  EXPECT_TRUE(bits.bitwise_right_shift(1).equal(bits >> 1));
  Tensor v = t + u - u * 2 / u;
  v += u;
  v -= 1;
  v *= u;
  v /= 2;
  EXPECT_TRUE((t == t).all().item<bool>());
  EXPECT_TRUE((t != u).all().item<bool>());
  EXPECT_TRUE((t < u).all().item<bool>());
  EXPECT_TRUE((t <= u).all().item<bool>());
  EXPECT_TRUE((u > t).all().item<bool>());
  EXPECT_TRUE((u >= t).all().item<bool>());
  EXPECT_TRUE((-t).equal(t.neg()));
  EXPECT_TRUE((2 * t).equal(t * 2));
}

TEST_F(DocumentedNamesOfOperations, Reductions) {
  const Tensor t = tensor({{1, 2, 3}, {4, 5, 6}}, options_);
  EXPECT_EQ(t.sum().item<int>(), 21);
  EXPECT_EQ(sum(t, 0).numel(), 3);
  EXPECT_EQ(t.sum({0, 1}, true).sizes(), Shape({1, 1}));
  EXPECT_EQ(t.mean(1, true).sizes(), Shape({2, 1}));
  EXPECT_EQ(t.prod().item<int>(), 720);
  EXPECT_EQ(t.max().item<int>(), 6);
  EXPECT_EQ(t.min().item<int>(), 1);
  const auto [values, indices] = t.max(1);
  EXPECT_EQ(indices.dtype(), i64);
  EXPECT_EQ(values.numel(), t.min(1).values.numel());
  EXPECT_EQ(t.amax(0).numel(), 3);
  EXPECT_EQ(t.amin(0).numel(), 3);
  EXPECT_EQ(t.argmax().item<int>(), 5);
  EXPECT_EQ(t.argmin(1).numel(), 2);
  EXPECT_TRUE(t.any().item<bool>());
  EXPECT_TRUE(t.all().item<bool>());
  EXPECT_GT(t.norm().item<float>(), 9);
  EXPECT_EQ(t.norm(1).item<float>(), 21);
  EXPECT_EQ(t.var(1).numel(), 2);
  EXPECT_EQ(t.std({.dims = 1, .correction = 0}).numel(), 2);
  EXPECT_EQ(t.logsumexp(1).numel(), 2);
  EXPECT_EQ(t.cumsum(0).numel(), 6);
  EXPECT_EQ(t.cumprod(0).numel(), 6);
  EXPECT_EQ(t.count_nonzero().item<int>(), 6);
  EXPECT_EQ(t.median().item<int>(), 3);
  EXPECT_EQ(t.median(1).values.numel(), 2);
  EXPECT_EQ(t.sort().values.numel(), 6);
  EXPECT_EQ(t.sort(0, true).indices.numel(), 6);
  EXPECT_EQ(t.argsort(0).numel(), 6);
  EXPECT_EQ(t.topk(2).values.sizes(), Shape({2, 2}));
  EXPECT_EQ(t.unique().values.numel(), 6);
  EXPECT_EQ(t.unique(true, false, false, 0).values.sizes(), Shape({2, 3}));
  EXPECT_EQ(t.unique_consecutive(false, false, 1).values.sizes(), Shape({2, 3}));
  EXPECT_EQ(t.softmax(1).numel(), 6);
  EXPECT_EQ(t.sum(0, false, f64).dtype(), f64);
}

TEST_F(DocumentedNamesOfOperations, ProductsAndJoins) {
  const Tensor a = ones({2, 3}, options_);
  const Tensor b = ones({3, 2}, options_);
  const Tensor v = ones({3}, options_);
  const Tensor batch = ones({4, 2, 3}, options_);
  EXPECT_EQ(matmul(a, b).sum().item<int>(), 12);
  EXPECT_EQ(a.mm(b).sum().item<int>(), 12);
  EXPECT_EQ(bmm(batch, ones({4, 3, 2}, options_)).numel(), 16);
  EXPECT_EQ(a.mv(v).numel(), 2);
  EXPECT_EQ(dot(v, v).item<int>(), 3);
  EXPECT_EQ(outer(v, v).numel(), 9);
  EXPECT_EQ(addmm(ones({2, 2}, options_), a, b).sum().item<int>(), 16);
  EXPECT_EQ(baddbmm(ones({4, 2, 2}, options_), batch, ones({4, 3, 2}, options_)).numel(), 16);
  EXPECT_EQ(addmv(ones({2}, options_), a, v).numel(), 2);
  EXPECT_EQ(einsum("ij,jk->ik", {a, b}).numel(), 4);
  EXPECT_EQ(cat({a, a}, 1).sizes(), Shape({2, 6}));
  EXPECT_EQ(stack({a, a}).sizes(), Shape({2, 2, 3}));
  EXPECT_EQ(hstack({a, a}).sizes(), Shape({2, 6}));
  EXPECT_EQ(vstack({a, a}).sizes(), Shape({4, 3}));
  EXPECT_EQ(split(a, 1, 0).size(), 2U);
  EXPECT_EQ(chunk(a, 3, 1).size(), 3U);
  EXPECT_EQ(tensor_split(a, 3, 1).size(), 3U);
  EXPECT_EQ(repeat_interleave(v, 2).numel(), 6);
}

}  // namespace
}  // namespace gantry
