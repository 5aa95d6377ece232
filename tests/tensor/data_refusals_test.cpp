// Operations that compute refuse u16, u32, u64, f8e4m3 and f8e5m2 before anything is submitted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/activations.hpp>
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/jit.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/sorting.hpp>
#include <gantry/tensor/special_functions.hpp>
#include <gantry/tensor/statistics.hpp>

#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

// The arguments of the calls: a matrix of the dtype, an index and a bool mask of its shape.
struct Arguments {
  Tensor x;
  Tensor index;
  Tensor mask;
};

struct Call {
  std::string_view name;
  std::function<void(const Arguments&)> run;
};

#define UNARY(op)                                               \
  {                                                             \
#op, [](const Arguments& a) { static_cast<void>(op(a.x)); } \
  }
#define BINARY(op)                                                   \
  {                                                                  \
#op, [](const Arguments& a) { static_cast<void>(op(a.x, a.x)); } \
  }
#define CALL(name, ...)                                              \
  {                                                                  \
    name, [](const Arguments& a) { static_cast<void>(__VA_ARGS__); } \
  }

const std::vector<Call>& calls() {
  static const std::vector<Call> kCalls{
      // Elementwise, of one operand
      UNARY(neg),
      UNARY(abs),
      UNARY(sign),
      UNARY(square),
      UNARY(reciprocal),
      UNARY(sqrt),
      UNARY(rsqrt),
      UNARY(exp),
      UNARY(expm1),
      UNARY(log),
      UNARY(log2),
      UNARY(log10),
      UNARY(log1p),
      UNARY(sin),
      UNARY(cos),
      UNARY(tan),
      UNARY(asin),
      UNARY(acos),
      UNARY(atan),
      UNARY(sinh),
      UNARY(cosh),
      UNARY(tanh),
      UNARY(sigmoid),
      UNARY(relu),
      UNARY(gelu),
      UNARY(silu),
      UNARY(erf),
      UNARY(floor),
      UNARY(ceil),
      UNARY(round),
      UNARY(trunc),
      UNARY(frac),
      UNARY(bitwise_not),
      UNARY(logical_not),
      UNARY(isnan),
      UNARY(isinf),
      UNARY(isfinite),
      UNARY(asinh),
      UNARY(acosh),
      UNARY(atanh),
      UNARY(erfc),
      UNARY(exp2),
      UNARY(sinc),
      UNARY(deg2rad),
      UNARY(rad2deg),
      UNARY(signbit),
      UNARY(isposinf),
      UNARY(isneginf),
      UNARY(softplus),
      UNARY(log_sigmoid),
      UNARY(leaky_relu),
      UNARY(elu),
      UNARY(selu),
      UNARY(celu),
      UNARY(gelu_tanh),
      UNARY(hardtanh),
      UNARY(relu6),
      UNARY(nan_to_num),
      // of two
      BINARY(add),
      BINARY(sub),
      BINARY(mul),
      BINARY(div),
      BINARY(floor_divide),
      BINARY(remainder),
      BINARY(fmod),
      BINARY(pow),
      BINARY(atan2),
      BINARY(minimum),
      BINARY(maximum),
      BINARY(bitwise_and),
      BINARY(bitwise_or),
      BINARY(bitwise_xor),
      BINARY(bitwise_left_shift),
      BINARY(bitwise_right_shift),
      BINARY(logical_and),
      BINARY(logical_or),
      BINARY(logical_xor),
      BINARY(eq),
      BINARY(ne),
      BINARY(lt),
      BINARY(le),
      BINARY(gt),
      BINARY(ge),
      BINARY(logaddexp),
      BINARY(logaddexp2),
      BINARY(hypot),
      BINARY(xlogy),
      BINARY(copysign),
      BINARY(nextafter),
      BINARY(ldexp),
      BINARY(float_power),
      BINARY(heaviside),
      // with a number, in place, and of three
      CALL("add a number", add(a.x, 1)),
      CALL("a number minus", sub(2, a.x)),
      CALL("add_", a.x.add_(a.x)),
      CALL("mul_", a.x.mul_(2)),
      CALL("neg_", a.x.neg_()),
      CALL("pow 2", pow(a.x, 2)),
      CALL("clamp", clamp(a.x, 0, 1)),
      CALL("clamp by tensors", clamp(a.x, a.x, a.x)),
      CALL("lerp", lerp(a.x, a.x, a.x)),
      CALL("addcmul", addcmul(a.x, a.x, a.x)),
      CALL("addcdiv", addcdiv(a.x, a.x, a.x)),
      CALL("jit", jit::elementwise("template <class T> T f(T x) { return x + T(1); }")(a.x)),
      // Reductions and scans
      CALL("sum", sum(a.x)),
      CALL("sum of rows", sum(a.x, {1})),
      CALL("mean", mean(a.x)),
      CALL("prod", prod(a.x)),
      CALL("amax", amax(a.x)),
      CALL("amin", amin(a.x)),
      CALL("max", max(a.x)),
      CALL("max along", max(a.x, Dim(1))),
      CALL("argmax", argmax(a.x)),
      CALL("argmin", argmin(a.x, 0)),
      CALL("any", any(a.x)),
      CALL("all", all(a.x)),
      CALL("count_nonzero", count_nonzero(a.x)),
      CALL("norm", norm(a.x)),
      CALL("var", var(a.x)),
      CALL("std", gantry::std(a.x)),
      CALL("var_mean", var_mean(a.x)),
      CALL("logsumexp", logsumexp(a.x, {1})),
      CALL("cumsum", cumsum(a.x, 1)),
      CALL("cumprod", cumprod(a.x, 1)),
      CALL("softmax", softmax(a.x, 1)),
      CALL("log_softmax", log_softmax(a.x, 1)),
      CALL("aminmax", aminmax(a.x)),
      CALL("nansum", nansum(a.x)),
      CALL("nanmean", nanmean(a.x)),
      CALL("dist", dist(a.x, a.x)),
      CALL("cummax", cummax(a.x, 1)),
      CALL("logcumsumexp", logcumsumexp(a.x, 1)),
      // Order
      CALL("sort", sort(a.x)),
      CALL("argsort", argsort(a.x)),
      CALL("msort", msort(a.x)),
      CALL("topk", topk(a.x, 1)),
      CALL("kthvalue", kthvalue(a.x, 1)),
      CALL("median", median(a.x)),
      CALL("median along", median(a.x, Dim(1))),
      CALL("nanmedian", nanmedian(a.x)),
      CALL("mode", mode(a.x)),
      CALL("unique", unique(a.x)),
      CALL("unique_consecutive", unique_consecutive(a.x)),
      CALL("isin", isin(a.x, a.x)),
      CALL("searchsorted", searchsorted(a.x.select(0, 0), a.x)),
      CALL("bucketize", bucketize(a.x, a.x.select(0, 0))),
      CALL("bincount", bincount(a.x.select(0, 0))),
      CALL("histc", histc(a.x, 2, 0, 4)),
      // Products
      CALL("matmul", matmul(a.x, a.x)),
      CALL("mm", mm(a.x, a.x)),
      CALL("mv", mv(a.x, a.x[0])),
      CALL("dot", dot(a.x[0], a.x[0])),
      CALL("outer", outer(a.x[0], a.x[0])),
      CALL("addmm", addmm(a.x, a.x, a.x)),
      CALL("linear", linear(a.x, a.x)),
      CALL("einsum", einsum("ij,jk->ik", {a.x, a.x})),
      // Indices that collect
      CALL("scatter_add", scatter_add(a.x, 0, a.index, a.x)),
      CALL("scatter add", scatter(a.x, 0, a.index, a.x, "add")),
      CALL("scatter_add_", a.x.scatter_add_(0, a.index, a.x.clone())),
      CALL("scatter_reduce", scatter_reduce(a.x, 0, a.index, a.x, "amax")),
      CALL("index_add", index_add(a.x, 0, a.index[0], a.x)),
      CALL("index_reduce", index_reduce(a.x, 0, a.index[0], a.x, "prod")),
      CALL("put", put(a.x, a.index, a.x, true)),
      CALL("index_put", a.x.index_put_({a.index[0]}, a.x.clone(), true)),
      // Draws
      CALL("uniform_", a.x.uniform_()),
      CALL("normal_", a.x.normal_()),
      CALL("random_", a.x.random_()),
      CALL("random_ below", a.x.random_(0, 2)),
      CALL("bernoulli_", a.x.bernoulli_(0.5)),
      CALL("exponential_", a.x.exponential_()),
      CALL("rand", rand({2}, a.x.options())),
      CALL("randint", randint(3, {2}, a.x.options())),
      CALL("randperm", randperm(3, a.x.options())),
      CALL("arange", arange(3, a.x.options())),
      CALL("linspace", linspace(0, 1, 3, a.x.options())),
  };
  return kCalls;
}

class DataRefusalsTest : public testing::PlacedTest {};

TEST_P(DataRefusalsTest, WhatComputesRefusesThem) {
  for (const DType dtype : {u16, u32, u64, f8e4m3, f8e5m2}) {
    for (const bool is_strided : {false, true}) {
      const Tensor whole = tensor({{1, 2, 3, 1}, {2, 1, 3, 2}}, options(dtype));
      const Tensor x = is_strided ? whole.slice(1, 0, 4, 2) : whole.narrow(1, 0, 2).contiguous();
      const Arguments arguments{x, tensor({{0, 1}, {1, 0}}, options(i64)),
                                tensor({{true, false}, {true, true}}, options(bool_))};
      const std::vector<double> before = testing::elements(whole);
      for (const Call& call : calls()) {
        SCOPED_TRACE(std::string(call.name) + " of " + std::string(name(dtype)) +
                     (is_strided ? ", strided" : ""));
        try {
          call.run(arguments);
          ADD_FAILURE() << "computed";
        } catch (const DTypeError& error) {
          EXPECT_THAT(error.what(),
                      ::testing::HasSubstr(" does not compute with " + std::string(name(dtype)) +
                                           "; cast it with to()"));
        }
        EXPECT_EQ(testing::elements(whole), before);
      }
      if (device_.is_cuda()) synchronize(device_);  // no task failed
    }
  }
}

GANTRY_TEST_PLACES(DataRefusalsTest);

// PyTorch does not promote them, either.
TEST(DataPromotionTest, MixturesAreRefused) {
  const auto message = [](const Tensor& a, const Tensor& b) -> std::string {
    try {
      static_cast<void>(add(a, b));
    } catch (const DTypeError& error) {
      return error.what();
    }
    return "added";
  };
  EXPECT_EQ(message(ones({2}, u16), ones({2}, i32)),
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            "UInt16 and Int");
  EXPECT_EQ(message(ones({2}, f32), ones({2}, f8e5m2)),
            "Promotion for Float8 Types is not supported, attempted to promote Float and "
            "Float8_e5m2");
  EXPECT_EQ(message(ones({2}, f32), ones({2}, u64)), "added");
}

}  // namespace
}  // namespace gantry
