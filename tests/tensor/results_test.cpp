#include <gantry/tensor/results.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/sorting.hpp>
#include <gantry/tensor/statistics.hpp>

namespace gantry {
namespace {

using ::testing::ElementsAre;

TEST(ResultsTest, ResultsOfSeveralTensorsAreTuples) {
  const Tensor t = tensor({{1.f, 5.f, 2.f}, {4.f, 4.f, 0.f}});
  EXPECT_THAT(std::get<0>(t.max(1)).to_vector<float>(), ElementsAre(5, 4));
  EXPECT_THAT(std::get<1>(t.sort(1)).to_vector<int>(), ElementsAre(0, 2, 1, 2, 0, 1));
  EXPECT_THAT(std::get<1>(t.topk(1)).to_vector<int>(), ElementsAre(1, 0));
  EXPECT_THAT(std::get<0>(t.median(1)).to_vector<float>(), ElementsAre(2, 4));
  EXPECT_THAT(std::get<2>(t.unique(true, true, true)).to_vector<int>(), ElementsAre(1, 1, 1, 2, 1));
  EXPECT_EQ(std::get<1>(t.aminmax()).item<float>(), 5);
  EXPECT_TRUE(std::get<0>(var_mean(t, 1)).equal(t.var(1)));
  EXPECT_TRUE(std::get<1>(std_mean(t, 1)).equal(t.mean(1)));

  const Tensor& first = get<0>(t.max(1));  // lives on
  EXPECT_THAT(first.to_vector<float>(), ElementsAre(5, 4));

  Tensor a, b, c;
  std::tie(a, b) = var_mean(t, {0, 1});
  EXPECT_EQ(b.item<float>(), t.mean().item<float>());
  std::tie(a, std::ignore) = t.max(0);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(4, 5, 2));
  std::tie(a, b, c) = t.unique(true, false, true);
  EXPECT_FALSE(b.defined());
  const std::tuple<Tensor, Tensor> kept = t.max(1);
  EXPECT_THAT(std::get<1>(kept).to_vector<int>(), ElementsAre(1, 0));
  const auto sum = [](const Tensor& x, const Tensor& y) { return (x + y).sum().item<float>(); };
  EXPECT_EQ(std::apply(sum, t.max(1)), 10);
}

// Of a result R: what holds for a tuple with named members.
template <class R, auto... members>
void expect_named_tuple(R result) {
  const auto parts = [](auto& of) { return std::vector<Tensor>{of.*members...}; };
  const auto same = [](const std::vector<Tensor>& x, const std::vector<Tensor>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(x[i].is_same(y[i])) << i;
  };
  const auto listed = [](auto& of) {
    return std::apply([](auto&... part) { return std::vector<Tensor>{part...}; }, of);
  };
  static_assert(std::tuple_size_v<R> == sizeof...(members));
  static_assert(std::is_same_v<std::tuple_element_t<0, R>, Tensor>);
  static_assert(std::is_nothrow_move_constructible_v<R> && std::is_nothrow_move_assignable_v<R>);
  const std::vector<Tensor> before = parts(result);
  same(listed(result), before);

  R copy = result;  // refers to its own members
  same(listed(copy), before);
  ((result.*members = ones({1})), ...);
  same(listed(result), parts(result));
  same(listed(copy), before);
  R assigned;
  assigned = copy;
  R moved = std::move(copy);
  same(listed(moved), before);
  same(listed(assigned), before);
  assigned = std::move(result);
  same(listed(assigned), parts(assigned));
  EXPECT_FALSE(std::get<0>(assigned).is_same(before[0]));
  std::get<0>(assigned) = before[0];
  same({assigned.*std::get<0>(std::tuple(members...))}, {before[0]});
}

TEST(ResultsTest, MembersAndElementsOfAResultAreTheSame) {
  const Tensor t = rand({3, 4});
  expect_named_tuple<ValuesAndIndices, &ValuesAndIndices::values, &ValuesAndIndices::indices>(
      t.max(1));
  expect_named_tuple<UniqueElements, &UniqueElements::values, &UniqueElements::inverse,
                     &UniqueElements::counts>(t.unique(true, true, true));
  expect_named_tuple<StdMean, &StdMean::std, &StdMean::mean>(std_mean(t));
  expect_named_tuple<VarMean, &VarMean::var, &VarMean::mean>(var_mean(t));
  expect_named_tuple<MinMax, &MinMax::min, &MinMax::max>(aminmax(t));
  auto [values, indices] = t.max(1);
  static_assert(std::is_same_v<decltype(values), Tensor>);
  const auto& [deviation, mean] = std_mean(t);
  static_assert(std::is_same_v<decltype(mean), const Tensor>);
  EXPECT_TRUE(mean.equal(t.mean()));
}

}  // namespace
}  // namespace gantry
