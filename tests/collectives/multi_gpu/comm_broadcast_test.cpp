// Broadcasts: every way to work gives every receiver the source's bits, in order with all streams.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::expect_throws;
using testing::FaultDriver;
using testing::TuningScope;

class CommBroadcastTest : public testing::CommFixture {
 protected:
  // Random bits: all NaNs, infinities and denormals of a floating dtype are among them.
  static Tensor random_bits(std::int64_t bytes, Device device) {
    Generator generator(Device::cpu(), 7);
    return randint(0, 256, {bytes}, {.dtype = u8}, &generator).to(device);
  }
  static Tensor as(const Tensor& raw, DType dtype) {
    const auto width = static_cast<std::int64_t>(element_size(dtype));
    return Tensor::from_storage(raw.storage(), {raw.numel() / width}, {1}, 0, dtype);
  }
};

TEST_F(CommBroadcastTest, EveryWayGivesTheSourcesBits) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : {1, 2, 3, 5, 8}) {
      const std::vector<Device> to = devices(count);
      for (const DType dtype : {u8, bf16, f32, f64}) {
        for (const std::int64_t length : lengths()) {
          const auto width = static_cast<std::int64_t>(element_size(dtype));
          const Tensor source = as(random_bits(length * width, to.back()), dtype);
          const std::vector<std::uint8_t> expected = bits(source);
          for (const Tensor& copy : comm::broadcast(source, to)) {
            ASSERT_EQ(bits(copy), expected) << to.size() << " devices, " << length << " " << dtype;
          }
        }
      }
    }
  }
}

TEST_F(CommBroadcastTest, OffsetsThatNoWordIsAlignedToAreCopiedExactly) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const Tensor raw = random_bits(70'000, Device::cuda(0));
    for (const std::int64_t begin : {1, 2, 4, 9}) {
      const Tensor source = raw.narrow(0, begin, 66'001);
      std::vector<Tensor> out;
      for (const Device device : devices()) {
        out.push_back(zeros({66'100}, {.dtype = u8, .device = device}).narrow(0, 3, 66'001));
      }
      comm::broadcast(source, out);
      for (const Tensor& tensor : out) EXPECT_EQ(bits(tensor), bits(source)) << begin;
    }
  }
}

TEST_F(CommBroadcastTest, DevicesMayRepeatInAnyOrder) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    std::vector<Device> to = devices();
    to.insert(to.end(), {Device::cuda(0), to.back(), to.back()});
    std::reverse(to.begin(), to.end());
    const Tensor source = ramp({5, 1000}, Device::cuda(0), 3);
    const std::vector<Tensor> copies = comm::broadcast(source, to);
    for (std::size_t i = 0; i < to.size(); ++i) {
      EXPECT_EQ(copies[i].device(), to[i]);
      EXPECT_EQ(bits(copies[i]), bits(source));
      for (std::size_t j = 0; j < i; ++j) {
        const bool both_source = to[i] == Device::cuda(0) && to[j] == Device::cuda(0);
        EXPECT_EQ(copies[i].is_view_of(copies[j]), both_source);
      }
    }
  }
}

TEST_F(CommBroadcastTest, MoreReceiversThanOneLaunchServes) {
  const std::vector<Device> to(150, devices().back());
  const Tensor source = ramp({33}, Device::cuda(0), 1);
  for (const Tensor& copy : comm::broadcast(source, to)) EXPECT_EQ(bits(copy), bits(source));
}

TEST_F(CommBroadcastTest, InputsAndOutputsMayBeOverwrittenAtOnceOnTheirOwnStreams) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const std::vector<Device> to = devices();
    for (int round = 0; round < 12; ++round) {
      const std::int64_t length = round % 3 == 0 ? 100 : round % 3 == 1 ? 3000 : 9000;
      Tensor source = zeros({length}, {.device = to[0]});
      source.fill_(round);
      std::vector<Tensor> copies = comm::broadcast(source, to);
      source.fill_(-1);
      for (std::size_t i = 1; i < copies.size(); ++i) {
        copies[i].add_(1);
        if (round % 2 == 0) continue;
        EXPECT_EQ(copies[i].amin().item<int>(), round + 1);
        EXPECT_EQ(copies[i].amax().item<int>(), round + 1);
      }
    }
  }
}

TEST_F(CommBroadcastTest, OutputsThatAreInUseAreWaitedFor) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    std::vector<Tensor> out;
    for (const Device device : devices()) out.push_back(zeros({5000}, {.device = device}));
    Tensor source = ones({5000}, {.device = "cuda:0"});
    for (int round = 0; round < 10; ++round) {
      for (Tensor& tensor : out) tensor.mul_(3).add_(1);
      source.fill_(round);
      comm::broadcast(source, out);
      source.fill_(-1);
    }
    for (const Tensor& tensor : out) {
      EXPECT_EQ(tensor.amin().item<int>(), 9);
      EXPECT_EQ(tensor.amax().item<int>(), 9);
    }
  }
}

TEST_F(CommBroadcastTest, CachedOutputsSaveWaitsAndAreNeverShared) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard guard(streams);
  const std::vector<Device> to = devices();
  const auto receivers = static_cast<std::uint64_t>(to.size() - 1);
  const Tensor source = ramp({256}, Device::cuda(0), 0);
  std::vector<std::vector<Tensor>> kept;
  for (int i = 0; i < 2; ++i) kept.push_back(comm::broadcast(source, to));
  for (const Device device : to) synchronize(device);
  FaultDriver counting;
  for (int i = 0; i < 10; ++i) kept.push_back(comm::broadcast(source, to));
  EXPECT_EQ(counting.calls("wait_event"), 10 * receivers) << "only the receivers wait";
  for (std::size_t a = 0; a < kept.size(); ++a) {
    for (std::size_t d = 1; d < to.size(); ++d) {
      for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(kept[a][d].is_view_of(kept[b][d]));
    }
  }
}

TEST_F(CommBroadcastTest, CachedOutputsAreReleasedOnRequest) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> to = devices();
  const std::size_t before = memory::allocated(to.back());
  {
    const Tensor source = ones({256}, {.device = "cuda:0"});
    for (int i = 0; i < 3; ++i) (void)comm::broadcast(source, to);
  }
  EXPECT_GT(memory::allocated(to.back()), before);
  release_cached_outputs();
  EXPECT_EQ(memory::allocated(to.back()), before);
}

TEST_F(CommBroadcastTest, CachedOutputsOfAllThreadsAreReleasedUnderMemoryPressure) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> to = devices();
  const Device last = to.back();
  const std::size_t before = memory::allocated(last);
  const auto fill_cache = [&] {
    const Tensor source = ones({1 << 18}, {.device = "cuda:0"});
    for (int i = 0; i < 3; ++i) (void)comm::broadcast(source, to);
    synchronize(last);
    EXPECT_GT(memory::allocated(last), before);
  };
  fill_cache();
  std::thread([&] { memory::empty_cache(); }).join();
  EXPECT_EQ(memory::allocated(last), before);
  fill_cache();
  const auto total = static_cast<double>(device_properties(last).total_memory);
  const double limit = static_cast<double>(memory::reserved(last)) + (64 << 20);
  memory::set_fraction(std::min(1.0, limit / total), last);
  std::thread([&] {
    std::vector<Tensor> all;
    EXPECT_THROW(for (;;) all.push_back(empty({1 << 16}, {.device = last})), OutOfMemoryError);
  }).join();
  memory::set_fraction(1, last);
  EXPECT_EQ(memory::allocated(last), before);
}

TEST_F(CommBroadcastTest, AllowCastConvertsAndWithoutItNothingIsWritten) {
  const Tensor source = ramp({300}, Device::cuda(0), 1);
  for (const Tensor& from : {source, source.cpu()}) {
    std::vector<Tensor> out;
    for (const Device device : devices())
      out.push_back(zeros({300}, {.dtype = f64, .device = device}));
    out.push_back(zeros({300}, {.dtype = i32, .device = "cuda:0"}));
    expect_throws<DTypeError>([&] { comm::broadcast(from, out); },
                              "output tensor at index 0 has dtype f64");
    EXPECT_EQ(out[0].amax().item<double>(), 0);
    comm::broadcast(from, out, {.allow_cast = true});
    for (const Tensor& tensor : out) {
      EXPECT_EQ(tensor.to_vector<double>(), source.to_vector<double>());
    }
  }
}

TEST_F(CommBroadcastTest, AFailingDriverCallLeavesTheLibraryUsable) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Device> to = devices();
  const Tensor source = ramp({4000}, Device::cuda(0), 1);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const char* call : {"record_event", "wait_event"}) {
      for (int at = 1; at < 4; ++at) {
        for (const Device device : to) synchronize(device);
        {
          FaultDriver faults;
          faults.fail_on(call, static_cast<std::uint64_t>(at));
          try {
            (void)comm::broadcast(source, to);
          } catch (const CudaError&) {
          }
        }
        for (const Device device : to) synchronize(device);
        for (const Tensor& copy : comm::broadcast(source, to)) EXPECT_EQ(bits(copy), bits(source));
      }
    }
  }
}

}  // namespace
}  // namespace gantry
