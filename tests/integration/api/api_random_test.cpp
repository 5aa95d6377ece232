// Random state and random tensors through the umbrella header.
#include <gtest/gtest.h>

#include <algorithm>
#include <gantry/gantry.hpp>
#include <numeric>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;

class ApiRandomTest : public gantry::testing::DeviceTest {};

TEST_F(ApiRandomTest, SameSeedGivesSameNumbersEverywhere) {
  manual_seed_all(42);
  const Tensor on_device = rand({100}, {.device = "cuda:0"});
  const Tensor on_cpu = rand({100});
  EXPECT_TRUE(on_device.cpu().equal(on_cpu));
  manual_seed(42);
  EXPECT_TRUE(rand({100}, {.device = "cuda:0"}).equal(on_device));
  EXPECT_EQ(initial_seed(), 42u);
}

TEST_F(ApiRandomTest, SeedsFromTheSystem) {
  const std::uint64_t one = seed();
  EXPECT_EQ(initial_seed(), one);
  const std::uint64_t all = seed_all();
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), all);
  EXPECT_EQ(default_generator(Device::cuda(0)).initial_seed(), all);
}

TEST_F(ApiRandomTest, StateRestores) {
  const Tensor state = get_rng_state(Device::cuda(0));
  EXPECT_EQ(state.dtype(), u8);
  EXPECT_EQ(state.numel(), 16);
  EXPECT_EQ(state.device(), Device::cpu());
  const Tensor first = randn({10}, {.device = "cuda:0"});
  set_rng_state(state, Device::cuda(0));
  EXPECT_TRUE(randn({10}, {.device = "cuda:0"}).equal(first));
  EXPECT_THROW(set_rng_state(zeros({3}, {.dtype = u8}), Device::cuda(0)), InvalidArgument);
  const Tensor before = get_rng_state(Device::cuda(0));
  EXPECT_THROW(set_rng_state(Tensor(), Device::cuda(0)), InvalidArgument);
  EXPECT_THROW(set_rng_state(zeros({16}), Device::cuda(0)), InvalidArgument);
  EXPECT_THROW(set_rng_state_all({}), InvalidArgument);
  EXPECT_TRUE(get_rng_state(Device::cuda(0)).equal(before));
}

TEST_F(ApiRandomTest, StateOfAllDevicesRestores) {
  const std::vector<Tensor> states = get_rng_state_all();
  ASSERT_EQ(static_cast<int>(states.size()), device_count());
  const Device last = Device::cuda(device_count() - 1);
  const Tensor first = rand({4}, {.device = last});
  set_rng_state_all(states);
  EXPECT_TRUE(rand({4}, {.device = last}).equal(first));
}

TEST_F(ApiRandomTest, GeneratorsAreIndependent) {
  Generator generator(Device::cuda(0));
  generator.manual_seed(7);
  Generator twin(Device::cuda(0), 7);
  const Tensor a = rand({8}, {.device = "cuda:0"}, &generator);
  EXPECT_TRUE(rand({8}, {.device = "cuda:0"}, &twin).equal(a));
  EXPECT_FALSE(rand({8}, {.device = "cuda:0"}, &twin).equal(a));
  EXPECT_EQ(generator.initial_seed(), 7u);
  EXPECT_EQ(generator.device(), Device::cuda(0));
  generator.set_state(twin.get_state());
  EXPECT_TRUE(
      rand({8}, {.device = "cuda:0"}, &generator).equal(rand({8}, {.device = "cuda:0"}, &twin)));
}

TEST_F(ApiRandomTest, ForksDifferByRank) {
  const Generator parent(Device::cpu(), 5);
  Generator zero = parent.fork(0);
  Generator zero_again = parent.fork(0);
  Generator one = parent.fork(1);
  const Tensor numbers = rand({16}, {}, &zero);
  EXPECT_TRUE(rand({16}, {}, &zero_again).equal(numbers));
  EXPECT_FALSE(rand({16}, {}, &one).equal(numbers));
}

TEST_F(ApiRandomTest, DrawsStayInTheirRange) {
  const TensorOptions options{.device = "cuda:0"};
  const Tensor uniform = rand({1000}, options);
  EXPECT_TRUE(((uniform >= 0) & (uniform < 1)).all().item<bool>());
  const Tensor normal = randn({2000}, options);
  EXPECT_NEAR(normal.mean().item<double>(), 0, 0.2);
  const Tensor integers = randint(3, 9, {1000}, options);
  EXPECT_EQ(integers.dtype(), i64);
  EXPECT_EQ(integers.min().item<int>(), 3);
  EXPECT_EQ(integers.max().item<int>(), 8);
  EXPECT_LT(randint(4, {100}, options).max().item<int>(), 4);
  const Tensor coins = bernoulli(full({1000}, 0.5, options));
  EXPECT_TRUE(((coins == 0) | (coins == 1)).all().item<bool>());
  EXPECT_NEAR(coins.mean().item<double>(), 0.5, 0.1);
}

TEST_F(ApiRandomTest, PermutationHoldsEveryNumberOnce) {
  std::vector<std::int64_t> numbers = randperm(100, {.device = "cuda:0"}).to_vector<std::int64_t>();
  EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::int64_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(numbers, expected);
}

TEST_F(ApiRandomTest, FillsInPlaceAndLikeOthers) {
  Tensor tensor = zeros({100}, {.device = "cuda:0"});
  tensor.uniform_(2, 3);
  EXPECT_TRUE(((tensor >= 2) & (tensor < 3)).all().item<bool>());
  tensor.normal_(10, 0.5);
  EXPECT_NEAR(tensor.mean().item<double>(), 10, 1);
  tensor.bernoulli_(1.0);
  EXPECT_EQ(tensor.sum().item<float>(), 100.0f);
  tensor.random_(5, 6);
  EXPECT_EQ(tensor.sum().item<float>(), 500.0f);
  EXPECT_EQ(rand_like(tensor).device(), Device::cuda(0));
  EXPECT_EQ(randn_like(tensor, {.dtype = f64}).dtype(), f64);
  EXPECT_EQ(randint_like(tensor, 0, 1).sum().item<float>(), 0.0f);
}

TEST_F(ApiRandomTest, GeneratorsAreTheLastArgument) {
  const TensorOptions options{.device = "cuda:0"};
  Generator generator(Device::cuda(0), 7);
  const Tensor numbers = rand({8}, options, generator);
  Generator& same = generator;
  same.manual_seed(7);
  EXPECT_TRUE(zeros({8}, options).uniform_(0, 1, same).equal(numbers));
  Generator of_device = default_generator(Device::cuda(0));  // a handle
  of_device.manual_seed(7);
  EXPECT_TRUE(rand({8}, options).equal(numbers));
}

}  // namespace
