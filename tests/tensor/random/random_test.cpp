#include <gantry/tensor/random.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

TEST(GeneratorTest, BeginsAtTheDefaultSeed) {
  const Generator generator;
  EXPECT_EQ(generator.initial_seed(), Generator::kDefaultSeed);
  EXPECT_EQ(generator.offset(), 0u);
  EXPECT_EQ(generator.device(), Device::cpu());
}

TEST(GeneratorTest, AdvancesByOneForEveryDraw) {
  Generator generator;
  static_cast<void>(rand({1000}, {}, &generator));
  EXPECT_EQ(generator.offset(), 1u);
  static_cast<void>(randperm(5, {}, &generator));
  static_cast<void>(randn({0}, {}, &generator));
  EXPECT_EQ(generator.offset(), 3u);
  EXPECT_EQ(generator.advance(4), 3u);
  EXPECT_EQ(generator.offset(), 7u);
}

TEST(GeneratorTest, RepeatsAfterManualSeed) {
  Generator generator;
  generator.manual_seed(5);
  const Tensor first = randn({100}, {}, &generator);
  const Tensor second = randn({100}, {}, &generator);
  EXPECT_FALSE(first.equal(second));
  generator.manual_seed(5);
  EXPECT_TRUE(first.equal(randn({100}, {}, &generator)));
  EXPECT_TRUE(second.equal(randn({100}, {}, &generator)));
}

TEST(GeneratorTest, SavesItsStateInSixteenBytes) {
  Generator generator(Device::cpu(), 0x1122334455667788u);
  generator.set_offset(0x99);
  const Tensor state = generator.get_state();
  EXPECT_THAT(state.to_vector<std::uint8_t>(),
              ::testing::ElementsAre(0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x99, 0, 0, 0,
                                     0, 0, 0, 0));
  const Tensor drawn = rand({9}, {}, &generator);
  Generator other;
  other.set_state(state);
  EXPECT_EQ(other.initial_seed(), 0x1122334455667788u);
  EXPECT_TRUE(drawn.equal(rand({9}, {}, &other)));
  EXPECT_ERROR(other.set_state(zeros({16})), InvalidArgument,
               "set_state: expected a CPU tensor of 16 u8 elements, but got 16 elements of type "
               "Float on cpu");
  EXPECT_ERROR(other.set_state(zeros({15}, {.dtype = u8})), InvalidArgument, "but got 15 elements");
  EXPECT_ERROR(other.set_state(Tensor()), InvalidArgument, "set_state");
  EXPECT_EQ(other.offset(), 0x9au);
}

TEST(GeneratorTest, ForksIndependentGenerators) {
  const Generator generator(Device::cpu(), 1);
  std::set<std::uint64_t> seeds{generator.initial_seed()};
  for (std::uint64_t rank = 0; rank < 1000; ++rank) {
    seeds.insert(generator.fork(rank).initial_seed());
    EXPECT_EQ(generator.fork(rank).initial_seed(), generator.fork(rank).initial_seed());
  }
  EXPECT_EQ(seeds.size(), 1001u);
}

TEST(GeneratorTest, SeedsFromTheSystem) {
  Generator generator;
  const std::uint64_t seed = generator.seed();
  EXPECT_EQ(generator.initial_seed(), seed);
  EXPECT_NE(generator.seed(), seed);
}

TEST(GeneratorTest, GivesEveryOffsetToOneThread) {
  Generator generator;
  std::vector<std::uint64_t> taken[4];
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) mine.push_back(generator.advance());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : taken) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 4000u);
  EXPECT_EQ(generator.offset(), 4000u);
}

TEST(GeneratorTest, DrawsNoNumberTwiceWhileAnotherThreadSeeds) {
  Generator generator;
  std::vector<double> drawn[3];
  std::vector<std::thread> threads;
  for (auto& mine : drawn) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        mine.push_back(rand({1}, {.dtype = f64}, generator).item<double>());
      }
    });
  }
  for (std::uint64_t seed = 0; seed < 20000; ++seed) generator.manual_seed(seed);
  for (std::thread& thread : threads) thread.join();
  std::set<double> all;
  for (const auto& mine : drawn) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 6000u);
}

TEST(GeneratorTest, ReturnsSeedAndOffsetsAtomically) {
  Generator generator(Device::cpu(), 5);
  generator.set_offset(7);
  const Generator::Position at = generator.take(3);
  EXPECT_EQ(at.seed, 5u);
  EXPECT_EQ(at.offset, 7u);
  EXPECT_EQ(generator.take().offset, 10u);
}

TEST(RandomTest, DrawsInRange) {
  Generator generator;
  for (const double x : rand({1000}, {.dtype = f64}, &generator).to_vector<double>()) {
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
  }
  std::set<std::int64_t> seen;
  for (const std::int64_t x : randint(-2, 3, {1000}, {}, &generator).to_vector<std::int64_t>())
    seen.insert(x);
  EXPECT_EQ(seen, (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
  EXPECT_EQ(randint(5, {2}).dtype(), i64);
  EXPECT_EQ(randint(5, {2}, {.dtype = u8}).dtype(), u8);
  Tensor filled = zeros({500}, {.dtype = f32});
  filled.uniform_(-4, -3, &generator);
  for (const float x : filled.to_vector<float>()) EXPECT_TRUE(x >= -4 && x < -3);
  filled.bernoulli_(0.5, &generator);
  std::int64_t ones = 0;
  for (const float x : filled.to_vector<float>()) ones += x == 1;
  EXPECT_NEAR(static_cast<double>(ones), 250, 80);
  EXPECT_TRUE(bernoulli(gantry::ones({5})).equal(gantry::ones({5})));
  Tensor bytes = zeros({3000}, {.dtype = u8});
  bytes.random_(&generator);
  std::set<std::uint8_t> values;
  for (const std::uint8_t x : bytes.to_vector<std::uint8_t>()) values.insert(x);
  EXPECT_EQ(values.size(), 256u);
  Tensor wide = zeros({100}, {.dtype = i64});
  wide.random_(&generator);
  const auto drawn = std::ranges::minmax(wide.to_vector<std::int64_t>());
  EXPECT_GE(drawn.min, 0);
  EXPECT_GT(drawn.max, std::int64_t{1} << 60);
}

TEST(RandomTest, PermutesEveryPosition) {
  Generator generator;
  std::vector<std::int64_t> order = randperm(100, {}, &generator).to_vector<std::int64_t>();
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(randperm(0).numel(), 0);
  EXPECT_EQ(randperm(9, {.dtype = i32}).dtype(), i32);
}

// The call either throws and draws nothing, or all drawn numbers are in range and differ.
TEST(RandomTest, DrawsFromEveryIntervalThatItAccepts) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kBounds[] = {-kInf, -1e308, -3e38, -2e38, -7e4,   -65504, -1e4,  0,
                                1,     1e4,    65504, 7e4,   1.7e38, 3e38,   1e308, kInf};
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const double limit = dtype == f16    ? 65504
                         : dtype == bf16 ? 0x1.FEp127
                         : dtype == f32  ? double{std::numeric_limits<float>::max()}
                                         : std::numeric_limits<double>::max();
    for (const double low : kBounds) {
      for (const double high : kBounds) {
        if (low >= high) continue;
        SCOPED_TRACE(::testing::Message() << dtype << " from " << low << " to " << high);
        Generator generator;
        Tensor drawn = zeros({64}, {.dtype = dtype});
        const bool fits = low >= -limit && high <= limit && high - low <= limit;
        if (!fits) {
          EXPECT_THROW(drawn.uniform_(low, high, generator), InvalidArgument);
          EXPECT_EQ(generator.offset(), 0u);
          continue;
        }
        drawn.uniform_(low, high, generator);
        std::set<double> values;
        for (const double x : drawn.to_vector<double>()) {
          EXPECT_GE(x, low - std::fabs(low) / 128);  // as `low` may round
          EXPECT_LT(x, high);
          values.insert(x);
        }
        EXPECT_GT(values.size(), 5u);
      }
    }
  }
}

TEST(RandomTest, CopiesShapeDTypeAndDevice) {
  const Tensor other = zeros({2, 3}, {.dtype = f16});
  EXPECT_EQ(rand_like(other).dtype(), f16);
  EXPECT_EQ(randn_like(other).sizes(), other.sizes());
  EXPECT_EQ(randn_like(other, {.dtype = f64}).dtype(), f64);
  EXPECT_EQ(randint_like(other, 0, 9).dtype(), f16);
}

TEST(RandomTest, RejectsBadArguments) {
  Generator generator;
  Tensor reals = zeros({3});
  Tensor ints = zeros({3}, {.dtype = u8});
  EXPECT_ERROR(rand({2}, {.dtype = i64}, &generator), DTypeError,
               "rand: expected a floating type, but got Long");
  EXPECT_ERROR(randn({2}, {.dtype = bool_}, &generator), DTypeError,
               "randn: expected a floating type, but got Bool");
  EXPECT_ERROR(randint(5, 5, {2}, {}, &generator), InvalidArgument,
               "randint: random_ expects 'from' to be less than 'to', but got from=5 >= to=5");
  EXPECT_ERROR(randint(-1, 5, {2}, {.dtype = u8}, &generator), InvalidArgument,
               "randint: from is out of bounds for Byte, got -1");
  EXPECT_ERROR(ints.random_(0, 258, &generator), InvalidArgument,
               "random_: to - 1 is out of bounds for Byte, got 257");
  EXPECT_ERROR(randperm(-1, {}, &generator), InvalidArgument,
               "randperm: n must be non-negative, got -1");
  EXPECT_ERROR(randperm(300, {.dtype = u8}, &generator), InvalidArgument,
               "randperm: n is too large for result tensor type: 'Byte'");
  EXPECT_ERROR(reals.normal_(0, -1, &generator), InvalidArgument,
               "normal expects std >= 0.0, but found std -1");
  EXPECT_ERROR(reals.uniform_(1, 0, &generator), InvalidArgument,
               "uniform_ expects to return a [from, to) range, but found from=1 > to=0");
  EXPECT_ERROR(reals.bernoulli_(2, &generator), InvalidArgument,
               "bernoulli_ expects p to be in [0, 1], but got p=2");
  EXPECT_ERROR(ints.normal_(0, 1, &generator), DTypeError,
               "normal_: expected a floating type, but got Byte");
  EXPECT_ERROR(bernoulli(ints, &generator), DTypeError,
               "bernoulli: expected a floating type, but got Byte");
  Tensor expanded = zeros({1}).expand({4});
  EXPECT_ERROR(expanded.normal_(0, 1, &generator), InvalidArgument,
               "more than one element of the written-to tensor");
  EXPECT_EQ(generator.offset(), 0u);
  EXPECT_TRUE(reals.equal(zeros({3})));
}

class RandomDeviceTest : public testing::DeviceTest {};

TEST_F(RandomDeviceTest, GivesTheSameNumbersEverywhere) {
  Generator on_cpu(Device::cpu(), 42);
  Generator on_device(Device::cuda(0), 42);
  const TensorOptions there{.device = Device::cuda(0)};
  const TensorOptions half_there{.dtype = f16, .device = Device::cuda(0)};
  EXPECT_TRUE(rand({33, 7}, {}, &on_cpu).equal(rand({33, 7}, there, &on_device).cpu()));
  EXPECT_TRUE(randn({33, 7}, {}, &on_cpu).equal(randn({33, 7}, there, &on_device).cpu()));
  EXPECT_TRUE(
      randn({101}, {.dtype = f16}, &on_cpu).equal(randn({101}, half_there, &on_device).cpu()));
  EXPECT_TRUE(
      randint(-9, 9, {101}, {}, &on_cpu).equal(randint(-9, 9, {101}, there, &on_device).cpu()));
  EXPECT_TRUE(randperm(1000, {}, &on_cpu).equal(randperm(1000, there, &on_device).cpu()));
  Tensor a = zeros({50}, {.dtype = i32});
  Tensor b = a.cuda(0);
  a.bernoulli_(0.3, &on_cpu);
  b.bernoulli_(0.3, &on_device);
  EXPECT_TRUE(a.equal(b.cpu()));
  EXPECT_EQ(on_cpu.offset(), on_device.offset());
}

TEST_F(RandomDeviceTest, RejectsAnotherDevicesGenerator) {
  Generator on_cpu;
  EXPECT_ERROR(rand({2}, {.device = Device::cuda(0)}, &on_cpu), InvalidArgument,
               "rand: Expected a 'cuda:0' device type for generator but found 'cpu'");
  EXPECT_EQ(on_cpu.offset(), 0u);
}

TEST_F(RandomDeviceTest, SeedsTheCurrentDeviceOrAll) {
  manual_seed_all(7);
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 7u);
  EXPECT_EQ(initial_seed(), 7u);
  manual_seed(8);
  EXPECT_EQ(default_generator(Device::cuda(0)).initial_seed(), 8u);
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 7u);
  const std::uint64_t fresh = seed_all();
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), fresh);
  EXPECT_EQ(initial_seed(), fresh);
  const std::uint64_t own = seed();
  EXPECT_EQ(initial_seed(), own);
  EXPECT_NE(own, fresh);
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_EQ(default_generator(Device::cuda(1)).initial_seed(), fresh);
  const DeviceGuard guard(Device::cuda(1));
  manual_seed(9);
  EXPECT_EQ(default_generator(Device::cuda(1)).initial_seed(), 9u);
}

TEST_F(RandomDeviceTest, SavesAndRestoresStates) {
  const TensorOptions there{.device = Device::cuda(0)};
  const Tensor state = get_rng_state(Device::cuda(0));
  const std::vector<Tensor> states = get_rng_state_all();
  EXPECT_EQ(static_cast<int>(states.size()), device_count());
  const Tensor first = randn({9}, there);
  set_rng_state(state, Device::cuda(0));
  EXPECT_TRUE(first.equal(randn({9}, there)));
  set_rng_state_all(states);
  EXPECT_TRUE(first.equal(randn({9}, there)));
  EXPECT_ERROR(set_rng_state_all({}), InvalidArgument, "set_rng_state_all: expected");
  std::vector<Tensor> broken = states;
  broken.back() = zeros({3});
  const std::uint64_t offset = default_generator(Device::cuda(0)).offset();
  EXPECT_ERROR(set_rng_state_all(broken), InvalidArgument,
               "set_rng_state_all: expected a CPU tensor of 16 u8 elements");
  EXPECT_EQ(default_generator(Device::cuda(0)).offset(), offset);
}

TEST(GeneratorTest, IsPassedByReferenceByPointerOrNotAtAll) {
  Generator generator(Device::cpu(), 3);
  const Tensor first = rand({4}, {}, generator);
  generator.manual_seed(3);
  EXPECT_TRUE(rand({4}, {}, &generator).equal(first));
  EXPECT_TRUE(rand({4}, f32, Generator(Device::cpu(), 3)).equal(first));
  generator.manual_seed(3);
  Tensor filled = zeros({4});
  EXPECT_TRUE(filled.uniform_(0, 1, generator).equal(first));
  generator.manual_seed(3);
  static_cast<void>(rand({4}, {}, nullptr));
  static_cast<void>(randn({4}));
  EXPECT_EQ(generator.offset(), 0u);
  filled.normal_(0, 1, generator);
  filled.random_(0, 9, generator);
  filled.random_(generator);
  filled.bernoulli_(0.5, generator);
  static_cast<void>(randint(0, 9, {4}, {}, generator));
  static_cast<void>(randint(9, {4}, i32, generator));
  static_cast<void>(randperm(4, i32, generator));
  static_cast<void>(bernoulli(full({4}, 0.5), generator));
  static_cast<void>(rand_like(filled, {}, generator));
  static_cast<void>(randn_like(filled, f64, generator));
  static_cast<void>(randint_like(filled, 0, 9, {}, generator));
  EXPECT_EQ(generator.offset(), 11u);
  EXPECT_EQ(filled.random_(1, generator).sum().item<float>(), 0);
  EXPECT_EQ(randint_like(filled, 1).sum().item<float>(), 0);
}

TEST(GeneratorTest, CopiesShareTheirStateAndClonesDoNot) {
  Generator generator(Device::cpu(), 3);
  Generator handle = generator;
  Generator own = generator.clone();
  static_cast<void>(rand({4}, {}, handle));
  EXPECT_EQ(generator.offset(), 1u);
  EXPECT_EQ(own.offset(), 0u);
  EXPECT_EQ(own.initial_seed(), 3u);
  Generator of_device = default_generator(Device::cpu());
  of_device.manual_seed(12);
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 12u);
}

// One draw of everything that takes a generator.
template <class G>
std::vector<Tensor> all_draws(G& generator) {
  const Tensor half = full({4}, 0.5);
  const auto made = [] { return zeros({4}); };
  return {rand({4}, {}, generator),
          rand({4}, f64, generator),
          rand({4}, generator),
          rand({4}, {}, &generator),
          rand({4}, &generator),
          randn({4}, {}, generator),
          randn({4}, generator),
          randint(9, {4}, {}, generator),
          randint(9, {4}, generator),
          randint(1, 9, {4}, i32, generator),
          randint(1, 9, {4}, generator),
          randperm(9, {}, generator),
          randperm(9, generator),
          bernoulli(half, generator),
          rand_like(half, {}, generator),
          randn_like(half, f64, generator),
          randint_like(half, 9, {}, generator),
          randint_like(half, 1, 9, {}, generator),
          normal(1, 2, {4}, {}, generator),
          normal(1, 2, {4}, generator),
          normal(half, half, generator),
          normal(half, 2, generator),
          normal(1, half, generator),
          poisson(half, generator),
          multinomial(half, 2, false, generator),
          half.multinomial(2, false, generator),
          rand_shard({4}, {.start = 1, .length = 2}, {}, generator),
          randn_shard({4}, {.start = 1, .length = 2}, {}, generator),
          made().normal_(0, 1, generator),
          made().uniform_(0, 1, generator),
          made().random_(1, 9, generator),
          made().random_(9, generator),
          made().random_(generator),
          made().bernoulli_(0.5, generator),
          made().exponential_(1, generator),
          made().cauchy_(0, 1, generator),
          made().log_normal_(0, 1, generator),
          made().geometric_(0.5, generator)};
}

TEST(GeneratorTest, AConstOneDrawsAsAnyOther) {
  Generator variable(Device::cpu(), 5);
  const Generator constant(Device::cpu(), 5);
  const std::vector<Tensor> expected = all_draws(variable);
  const std::vector<Tensor> draws = all_draws(constant);
  ASSERT_EQ(draws.size(), expected.size());
  for (std::size_t i = 0; i < draws.size(); ++i) {
    EXPECT_TRUE(draws[i].equal(expected[i])) << "draw " << i;
  }
  EXPECT_EQ(constant.offset(), variable.offset());
}

}  // namespace
}  // namespace gantry
