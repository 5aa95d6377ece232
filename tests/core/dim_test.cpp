#include <gantry/core/dim.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/sorting.hpp>
#include <gantry/tensor/statistics.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

enum Axis { kRows, kColumns };
enum class Side { left };

constexpr int kLowest = std::numeric_limits<int>::min();
constexpr int kHighest = std::numeric_limits<int>::max();

static_assert(Dim(-1) == -1 && Dim(std::uint8_t{255}) == 255 && Dim(std::int16_t{-7}) == -7);
static_assert(Dim('\1') == 1 && Dim(7u) == 7 && Dim(std::size_t{3}) == 3 && Dim(kColumns) == 1);
static_assert(Dim(kLowest) == kLowest && Dim(kHighest) == kHighest);
static_assert(Dim(std::int64_t{1} << 32) == kHighest && Dim(-(std::int64_t{1} << 32)) == kLowest);
static_assert(Dim(std::numeric_limits<std::int64_t>::min()) == kLowest);
static_assert(Dim(std::numeric_limits<std::size_t>::max()) == kHighest && Dim(~0u) == kHighest);
static_assert(std::is_trivially_copyable_v<Dim> && sizeof(Dim) == sizeof(int));
static_assert(std::is_nothrow_convertible_v<std::int64_t, Dim>);
static_assert(std::is_nothrow_convertible_v<Dim, int>);
static_assert(!std::is_constructible_v<Dim, bool> && !std::is_constructible_v<Dim, double>);
static_assert(!std::is_constructible_v<Dim, std::true_type>);
static_assert(!std::is_constructible_v<Dim, std::vector<bool>::reference>);
static_assert(!std::is_constructible_v<Dim, Side> && !std::is_constructible_v<Dim, void*>);
static_assert(std::is_convertible_v<std::optional<int>, std::optional<Dim>>);
static_assert(!std::is_constructible_v<std::optional<Dim>, std::optional<bool>>);
static_assert(!std::is_constructible_v<std::optional<Dim>, bool>);
static_assert(std::is_convertible_v<Dim, Axes> && !std::is_constructible_v<Axes, bool>);

// A call with a dim, and its text.
struct DimCall {
  const char* text;
  std::function<void(std::int64_t)> run;
};

template <class Call>
DimCall dim_call(const char* text, const Call& call) {
  static_assert(!std::invocable<Call, bool>, "accepts a bool as a dim");
  static_assert(std::invocable<Call, int> && std::invocable<Call, long> &&
                std::invocable<Call, Dim>);
  static_assert(std::invocable<Call, std::size_t> && std::invocable<Call, unsigned>);
  static_assert(std::invocable<Call, short> && std::invocable<Call, unsigned char>);
  return {text, call};
}

// A call that contains `dim`.
#define DIM_CALL(...)                                                                \
  dim_call(#__VA_ARGS__, [&](auto dim) -> decltype(static_cast<void>(__VA_ARGS__)) { \
    static_cast<void>(__VA_ARGS__);                                                  \
  })

void expect_index_errors(const std::vector<DimCall>& calls) {
  constexpr std::int64_t kWraps = std::int64_t{1} << 32;  // to dim 0
  using Limits = std::numeric_limits<std::int64_t>;
  for (const DimCall& call : calls) {
    for (const std::int64_t dim : {kWraps, 1 - kWraps, Limits::min(), Limits::max()}) {
      EXPECT_THROW(call.run(dim), IndexError) << call.text << " with " << dim;
    }
  }
}

TEST(DimTest, MembersRefuseBoolsAndNumbersBeyondInt) {
  const Tensor t = zeros({2, 3});
  const Tensor index = zeros({2, 3}, DType::i64), row = zeros({1}, DType::i64);
  const std::vector<std::int64_t> one{1};
  expect_index_errors({
      DIM_CALL(t.size(dim)),
      DIM_CALL(t.stride(dim)),
      DIM_CALL(t.transpose(dim, 0)),
      DIM_CALL(t.transpose(0, dim)),
      DIM_CALL(t.swapaxes(dim, 0)),
      DIM_CALL(t.swapaxes(0, dim)),
      DIM_CALL(t.swapdims(dim, 0)),
      DIM_CALL(t.swapdims(0, dim)),
      DIM_CALL(t.slice(dim)),
      DIM_CALL(t.narrow(dim, 0, 1)),
      DIM_CALL(t.select(dim, 0)),
      DIM_CALL(t.unsqueeze(dim)),
      DIM_CALL(t.flatten(dim)),
      DIM_CALL(t.flatten(0, dim)),
      DIM_CALL(t.unflatten(dim, {1, -1})),
      DIM_CALL(t.diagonal(0, dim)),
      DIM_CALL(t.diagonal(0, 0, dim)),
      DIM_CALL(t.unfold(dim, 1, 1)),
      DIM_CALL(t.split(1, dim)),
      DIM_CALL(t.split(one, dim)),
      DIM_CALL(t.tensor_split(1, dim)),
      DIM_CALL(t.tensor_split(one, dim)),
      DIM_CALL(t.chunk(1, dim)),
      DIM_CALL(t.unbind(dim)),
      DIM_CALL(t.repeat_interleave(2, dim)),
      DIM_CALL(t.max(dim)),
      DIM_CALL(t.min(dim)),
      DIM_CALL(t.argmax(dim)),
      DIM_CALL(t.argmin(dim)),
      DIM_CALL(t.aminmax(dim)),
      DIM_CALL(t.cumsum(dim)),
      DIM_CALL(t.cumprod(dim)),
      DIM_CALL(t.softmax(dim)),
      DIM_CALL(t.log_softmax(dim)),
      DIM_CALL(t.index_select(dim, row)),
      DIM_CALL(t.gather(dim, index)),
      DIM_CALL(t.scatter(dim, index, t)),
      DIM_CALL(t.scatter(dim, index, t, "add")),
      DIM_CALL(t.scatter_(dim, index, t)),
      DIM_CALL(t.scatter_(dim, index, t, "add")),
      DIM_CALL(t.scatter_add(dim, index, t)),
      DIM_CALL(t.scatter_add_(dim, index, t)),
      DIM_CALL(t.scatter_reduce(dim, index, t, "sum")),
      DIM_CALL(t.scatter_reduce_(dim, index, t, "sum")),
      DIM_CALL(t.take_along_dim(index, dim)),
      DIM_CALL(t.index_add(dim, row, t)),
      DIM_CALL(t.index_add_(dim, row, t)),
      DIM_CALL(t.index_copy(dim, row, t)),
      DIM_CALL(t.index_copy_(dim, row, t)),
      DIM_CALL(t.index_fill(dim, row, 1)),
      DIM_CALL(t.index_fill_(dim, row, 1)),
      DIM_CALL(t.index_reduce(dim, row, t, "prod")),
      DIM_CALL(t.index_reduce_(dim, row, t, "prod")),
      DIM_CALL(t.sort(dim)),
      DIM_CALL(t.sort(dim, true)),
      DIM_CALL(t.argsort(dim)),
      DIM_CALL(t.topk(1, dim)),
      DIM_CALL(t.kthvalue(1, dim)),
      DIM_CALL(t.median(dim)),
      DIM_CALL(t.nanmedian(dim)),
      DIM_CALL(t.mode(dim)),
      DIM_CALL(t.unique(true, false, false, dim)),
      DIM_CALL(t.unique_consecutive(false, false, dim)),
      DIM_CALL(t.cummax(dim)),
      DIM_CALL(t.cummin(dim)),
      DIM_CALL(t.logcumsumexp(dim)),
      DIM_CALL(t.diff(1, dim)),
  });
}

TEST(DimTest, FunctionsRefuseBoolsAndNumbersBeyondInt) {
  const Tensor t = zeros({2, 3});
  const std::vector<Tensor> vector{t, t};
  const std::span<const Tensor> span(vector);
  const Tensor index = zeros({2, 3}, DType::i64), row = zeros({1}, DType::i64);
  const std::vector<std::int64_t> one{1};
  expect_index_errors({
      DIM_CALL(cat(vector, dim)),
      DIM_CALL(cat(span, dim)),
      DIM_CALL(stack(vector, dim)),
      DIM_CALL(stack(span, dim)),
      DIM_CALL(split(t, 1, dim)),
      DIM_CALL(split(t, one, dim)),
      DIM_CALL(chunk(t, 1, dim)),
      DIM_CALL(tensor_split(t, 1, dim)),
      DIM_CALL(tensor_split(t, one, dim)),
      DIM_CALL(unbind(t, dim)),
      DIM_CALL(transpose(t, dim, 0)),
      DIM_CALL(transpose(t, 0, dim)),
      DIM_CALL(swapaxes(t, dim, 0)),
      DIM_CALL(swapaxes(t, 0, dim)),
      DIM_CALL(swapdims(t, dim, 0)),
      DIM_CALL(swapdims(t, 0, dim)),
      DIM_CALL(narrow(t, dim, 0, 1)),
      DIM_CALL(select(t, dim, 0)),
      DIM_CALL(unsqueeze(t, dim)),
      DIM_CALL(unflatten(t, dim, {1, -1})),
      DIM_CALL(diagonal(t, 0, dim)),
      DIM_CALL(diagonal(t, 0, 0, dim)),
      DIM_CALL(flatten(t, dim)),
      DIM_CALL(flatten(t, 0, dim)),
      DIM_CALL(repeat_interleave(t, 2, dim)),
      DIM_CALL(max(t, dim)),
      DIM_CALL(min(t, dim)),
      DIM_CALL(argmax(t, dim)),
      DIM_CALL(argmin(t, dim)),
      DIM_CALL(aminmax(t, dim)),
      DIM_CALL(cumsum(t, dim)),
      DIM_CALL(cumprod(t, dim)),
      DIM_CALL(softmax(t, dim)),
      DIM_CALL(log_softmax(t, dim)),
      DIM_CALL(index_select(t, dim, row)),
      DIM_CALL(gather(t, dim, index)),
      DIM_CALL(scatter(t, dim, index, t)),
      DIM_CALL(scatter(t, dim, index, t, "add")),
      DIM_CALL(scatter_add(t, dim, index, t)),
      DIM_CALL(scatter_reduce(t, dim, index, t, "sum")),
      DIM_CALL(take_along_dim(t, index, dim)),
      DIM_CALL(index_add(t, dim, row, t)),
      DIM_CALL(index_copy(t, dim, row, t)),
      DIM_CALL(index_fill(t, dim, row, 1)),
      DIM_CALL(index_reduce(t, dim, row, t, "prod")),
      DIM_CALL(sort(t, dim)),
      DIM_CALL(sort(t, dim, true)),
      DIM_CALL(argsort(t, dim)),
      DIM_CALL(topk(t, 1, dim)),
      DIM_CALL(kthvalue(t, 1, dim)),
      DIM_CALL(median(t, dim)),
      DIM_CALL(nanmedian(t, dim)),
      DIM_CALL(mode(t, dim)),
      DIM_CALL(unique(t, true, false, false, dim)),
      DIM_CALL(unique_consecutive(t, false, false, dim)),
      DIM_CALL(cummax(t, dim)),
      DIM_CALL(cummin(t, dim)),
      DIM_CALL(logcumsumexp(t, dim)),
      DIM_CALL(diff(t, 1, dim)),
      DIM_CALL(rand_shard({2, 3}, {.dim = dim, .length = 1})),
      DIM_CALL(randn_shard({2, 3}, {.dim = dim, .length = 1})),
  });
}

TEST(DimTest, FunctionsWithOutputsRefuseBoolsAndNumbersBeyondInt) {
  const Tensor t = zeros({2, 3});
  const std::vector<Tensor> tensors{t, t};
  const Tensor index = zeros({2, 3}, DType::i64), row = zeros({1}, DType::i64);
  Tensor out = zeros({3}), indices = zeros({3}, DType::i64);
  expect_index_errors({
      DIM_CALL(cat_out(out, tensors, dim)),
      DIM_CALL(stack_out(out, tensors, dim)),
      DIM_CALL(max_out(out, indices, t, dim)),
      DIM_CALL(min_out(out, indices, t, dim)),
      DIM_CALL(argmax_out(indices, t, dim)),
      DIM_CALL(argmin_out(indices, t, dim)),
      DIM_CALL(cumsum_out(out, t, dim)),
      DIM_CALL(cumprod_out(out, t, dim)),
      DIM_CALL(softmax_out(out, t, dim)),
      DIM_CALL(log_softmax_out(out, t, dim)),
      DIM_CALL(index_select_out(out, t, dim, row)),
      DIM_CALL(gather_out(out, t, dim, index)),
      DIM_CALL(take_along_dim_out(out, t, index, dim)),
      DIM_CALL(sort_out(out, indices, t, dim)),
      DIM_CALL(argsort_out(indices, t, dim)),
      DIM_CALL(topk_out(out, indices, t, 1, dim)),
      DIM_CALL(kthvalue_out(out, indices, t, 1, dim)),
      DIM_CALL(median_out(out, indices, t, dim)),
      DIM_CALL(nanmedian_out(out, indices, t, dim)),
      DIM_CALL(mode_out(out, indices, t, dim)),
      DIM_CALL(cummax_out(out, indices, t, dim)),
      DIM_CALL(cummin_out(out, indices, t, dim)),
      DIM_CALL(logcumsumexp_out(out, t, dim)),
      DIM_CALL(diff_out(out, t, 1, dim)),
  });
}

TEST(DimTest, CollectivesRefuseBoolsAndNumbersBeyondInt) {
  const Tensor t = zeros({2, 3}, Device::cuda(0));
  const std::vector<Tensor> tensors{t};
  const std::vector<Device> devices{Device::cuda(0)};
  Tensor out = zeros({2, 3}, Device::cuda(0));
  std::vector<Tensor> outs{out};
  expect_index_errors({
      DIM_CALL(comm::scatter(t, devices, {.dim = dim})),
      DIM_CALL(comm::scatter(t, outs, dim)),
      DIM_CALL(comm::scatter(t, outs, {.dim = dim})),
      DIM_CALL(comm::gather(tensors, {.dim = dim})),
      DIM_CALL(comm::gather(tensors, out, dim)),
      DIM_CALL(comm::gather(tensors, out, {.dim = dim})),
  });
}

TEST(DimTest, ListsOfDimsRefuseBools) {
  const Tensor t = zeros({2, 3});
  expect_index_errors({
      DIM_CALL(t.sum(dim)),
      DIM_CALL(t.squeeze(dim)),
      DIM_CALL(t.flip(dim)),
      DIM_CALL(t.roll(1, dim)),
      DIM_CALL(t.movedim(dim, 0)),
      DIM_CALL(t.movedim(0, dim)),
      DIM_CALL(t.norm(2, dim)),
      DIM_CALL(t.logsumexp(dim)),
      DIM_CALL(var(t, {.dims = dim})),
  });
  using Permutes = decltype([](auto... d) -> decltype(Tensor().permute({d...})) { return {}; });
  using Sums = decltype([](auto... d) -> decltype(Tensor().sum({d...})) { return {}; });
  static_assert(!std::invocable<Permutes, bool, bool> && std::invocable<Permutes, int, int> &&
                std::invocable<Permutes, int, long>);
  static_assert(!std::invocable<Sums, bool> && !std::invocable<Sums, bool, bool>);
  static_assert(std::invocable<Sums> && std::invocable<Sums, short> && std::invocable<Sums, Dim>);
  static_assert(std::invocable<Sums, int, std::int64_t>);
  EXPECT_EQ(t.permute({1, 0}).sizes(), Shape({3, 2}));
  EXPECT_EQ(t.sum({0, 1}).sizes(), Shape());
  EXPECT_EQ(t.sum({}).sizes(), Shape());
  EXPECT_EQ(t.sum({1}).sizes(), Shape({2}));
}

TEST(DimTest, IntegersChooseTheOverloadWithADim) {
  const Tensor t = zeros({2, 3});
  const auto chooses = [&]<class D>(D dim) {
    static_assert(std::same_as<decltype(t.max(dim)), ValuesAndIndices>);
    static_assert(std::same_as<decltype(max(t, dim)), ValuesAndIndices>);
    static_assert(std::same_as<decltype(min(t, dim, true)), ValuesAndIndices>);
    static_assert(std::same_as<decltype(median(t, dim)), ValuesAndIndices>);
    EXPECT_EQ(t.max(dim).values.sizes(), Shape({2}));
    EXPECT_EQ(t.argmax(dim).sizes(), Shape({2}));
    EXPECT_EQ(t.argmax(std::optional<D>(dim)).sizes(), Shape({2}));
    EXPECT_EQ(t.split(1, dim).size(), 3u);
    EXPECT_EQ(t.split({1, 2}, dim).size(), 2u);
    EXPECT_EQ(t.tensor_split({1}, dim).size(), 2u);
    EXPECT_EQ(t.size(dim), 3);
  };
  chooses(1);
  chooses(1L);
  chooses(std::size_t{1});
  chooses(short{1});
  chooses(std::uint8_t{1});
  chooses(Dim(1));
  static_assert(std::same_as<decltype(t.max(t)), Tensor> &&
                std::same_as<decltype(t.max()), Tensor>);
  EXPECT_EQ(t.select(kColumns, 0).sizes(), Shape({2}));
  EXPECT_EQ(t.argmax({}).sizes(), Shape());
  EXPECT_EQ(t.argmax(std::nullopt).sizes(), Shape());
}

TEST(DimTest, ErrorNamesTheNearestInt) {
  EXPECT_ERROR(zeros({2, 3}).softmax(std::int64_t{1} << 32), IndexError,
               "[-2, 1], but got 2147483647)");
}

}  // namespace
}  // namespace gantry
