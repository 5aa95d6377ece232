// The parts of a program whose bits are the same everywhere: on the CPU, on simulated devices, on
// every GPU, on any number of devices. What is not here may differ in the last bits: transcendental
// functions, matrix products, and so trained weights.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <gantry/gantry.hpp>
#include <string>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

// FNV-1a over all bytes.
std::uint64_t checksum(const Tensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::uint8_t byte : tensor.contiguous().flatten().view(u8).to_vector<std::uint8_t>()) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  return hash;
}

struct Part {
  std::string name;
  std::uint64_t expected;  // the same number on every platform
  std::function<Tensor(Device)> compute;
};

std::ostream& operator<<(std::ostream& out, const Part& part) { return out << part.name; }

Tensor numbers(Device device, DType dtype = f32) {
  Generator generator(device, 11);
  return randn({1000, 33}, {.dtype = dtype, .device = device}, &generator);
}

Tensor integers(Device device) {
  Generator generator(device, 12);
  return randint(-1000000, 1000000, {1000, 33}, {.dtype = i64, .device = device}, &generator);
}

std::vector<Part> parts() {
  return {
      {"uniform", 0x4ac1068493b15623,
       [](Device device) {
         Generator generator(device, 1);
         return rand({10007}, {.device = device}, &generator);
       }},
      {"normal", 0xa22de3a7250f53ee, [](Device device) { return numbers(device); }},
      {"normal_f64", 0x14aa5dfa9c4f9d64, [](Device device) { return numbers(device, f64); }},
      {"integers", 0x81ce1e7f2b0f4ec5, [](Device device) { return integers(device); }},
      {"permutation", 0x757c30f3391b7302,
       [](Device device) {
         Generator generator(device, 2);
         return randperm(1437, {.device = device}, &generator);
       }},
      {"bernoulli", 0x9439658531432a18,
       [](Device device) {
         Generator generator(device, 3);
         return bernoulli(full({5000}, 0.3, {.device = device}), &generator);
       }},
      {"integer_arithmetic", 0xfb681d05df9a10da,
       [](Device device) {
         const Tensor a = integers(device);
         return a.mul(a).add(a, 3).remainder(10007).bitwise_xor(a).floor_divide(7);
       }},
      {"field_arithmetic", 0xa1092049bfa35058,
       [](Device device) {
         const Tensor a = numbers(device);
         return ((a * a + 1) / (a.abs() + 0.5) - a).square().sqrt();
       }},
      {"conversions", 0xf917a13d20d7a19d,
       [](Device device) { return numbers(device).mul(100).to(bf16).to(i16).to(f16).to(f64); }},
      {"sum_of_all", 0xe0747c2f2e9e4255, [](Device device) { return numbers(device).sum(); }},
      {"sum_of_columns", 0x20fc0c7bc8d67d6d, [](Device device) { return numbers(device).sum(0); }},
      {"mean_of_rows", 0x582b3cb1816361eb, [](Device device) { return numbers(device).mean(1); }},
      {"half_sums", 0xc2b50d6b4d5c3bbf, [](Device device) { return numbers(device, f16).sum(0); }},
      {"largest", 0xa5c6a4632f4f906e, [](Device device) { return numbers(device).argmax(1); }},
      {"selected_rows", 0x9e7d39df105d18ba,
       [](Device device) {
         Generator generator(device, 2);
         return numbers(device).index_select(0, randperm(1000, {.device = device}, &generator));
       }},
      {"transposed", 0x44cf5b9007c84fbe,
       [](Device device) { return numbers(device).t().contiguous(); }},
  };
}

class PlatformBitsTest : public ::testing::TestWithParam<Part> {};

TEST_P(PlatformBitsTest, AreTheSameOnTheCpuAndEveryDevice) {
  const Part& part = GetParam();
  const std::uint64_t on_cpu = checksum(part.compute(Device::cpu()));
  EXPECT_EQ(on_cpu, part.expected) << "on the CPU";
  for (int i = 0; i < device_count(); ++i) {
    EXPECT_EQ(checksum(part.compute(Device::cuda(i))), part.expected) << "on cuda:" << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, PlatformBitsTest, ::testing::ValuesIn(parts()),
                         [](const auto& test) { return test.param.name; });

// Eight inputs wherever there are devices: a sum depends on the list, not on where its inputs live.
TEST(PlatformBitsTest, SumsOverDevicesDependOnTheListAlone) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const std::int64_t length : {1000, 3'000'000}) {
    std::vector<Tensor> spread;
    std::vector<Tensor> together;
    for (int rank = 0; rank < 8; ++rank) {
      Generator generator(Device::cpu(), 100 + static_cast<std::uint64_t>(rank));
      const Tensor made = rand({length}, {}, &generator).sub(0.5).mul(100);
      spread.push_back(made.to(Device::cuda(rank % device_count())));
      together.push_back(made.to(Device::cuda(0)));
    }
    const std::uint64_t sum = checksum(comm::reduce_add(spread, Device::cuda(0)));
    EXPECT_EQ(sum, checksum(comm::reduce_add(together, Device::cuda(0))));
    EXPECT_EQ(sum, length == 1000 ? 0xd1dedac7afb5f446 : 0xec30dc1611f707fc);
  }
}

}  // namespace
}  // namespace gantry
