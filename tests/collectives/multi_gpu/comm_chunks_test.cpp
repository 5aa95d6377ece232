// Scatter and gather: every way to work, order with all streams, casts.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::expect_throws;
using testing::FaultDriver;
using testing::TuningScope;

class CommChunksTest : public testing::CommFixture {};

TEST_F(CommChunksTest, EveryWayScattersAndGathersTheSameBits) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const int count : {1, 2, 3, 8}) {
      const std::vector<Device> to = devices(count);
      for (const DType dtype : {u8, bf16, f64}) {
        for (const std::int64_t length : lengths()) {
          const Tensor source = ramp({length}, to.back(), 1, dtype);
          const std::vector<Tensor> chunks = comm::scatter(source, to);
          ASSERT_EQ(chunks.size(), to.size());
          std::int64_t begin = 0;
          for (const Tensor& chunk : chunks) {
            ASSERT_EQ(bits(chunk), bits(source.narrow(0, begin, chunk.size(0))));
            begin += chunk.size(0);
          }
          ASSERT_EQ(begin, length);
          for (const Device destination : {to.front(), devices().back()}) {
            const Tensor joined = comm::gather(chunks, {.destination = destination});
            ASSERT_EQ(joined.device(), destination);
            ASSERT_EQ(bits(joined), bits(source)) << length << " x " << dtype;
          }
        }
      }
    }
  }
}

TEST_F(CommChunksTest, OtherDimensionsAndLayoutsGiveTheSameElements) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    for (const Tensor& source :
         {ramp({40, 50}, Device::cuda(0), 0), ramp({50, 40}, Device::cuda(0), 0).t()}) {
      for (const int dim : {0, 1}) {
        std::vector<Tensor> chunks = comm::scatter(source, devices(), {.dim = dim});
        EXPECT_TRUE(
            comm::gather(chunks, {.dim = dim, .destination = Device::cuda(0)}).equal(source));
        // Into places that exist, some of them strided.
        std::vector<Tensor> out;
        for (std::size_t i = 0; i < chunks.size(); ++i) {
          const Shape& sizes = chunks[i].sizes();
          const TensorOptions options{.device = devices()[i]};
          out.push_back(i % 2 == 0 ? zeros(sizes, options)
                                   : zeros({sizes[1], sizes[0]}, options).t());
        }
        comm::scatter(source, out, dim);
        Tensor joined = zeros({50, 40}, {.device = devices().back()}).t();
        comm::gather(out, joined, dim);
        EXPECT_TRUE(joined.cpu().equal(source.cpu()));
      }
    }
  }
}

TEST_F(CommChunksTest, EndsMayBeOverwrittenAtOnceOnTheirOwnStreams) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    for (int round = 0; round < 12; ++round) {
      const std::int64_t length = round % 2 == 0 ? 300 : 20'000;
      Tensor source = zeros({length}, {.device = "cuda:0"});
      source.fill_(round);
      std::vector<Tensor> chunks = comm::scatter(source, devices());
      // The source's own chunk is a view of it.
      source.narrow(0, chunks[0].size(0), length - chunks[0].size(0)).fill_(-1);
      for (Tensor& chunk : chunks) chunk.add_(1);
      Tensor joined = comm::gather(chunks, {.destination = devices().back()});
      for (Tensor& chunk : chunks) chunk.fill_(-2);
      joined.add_(1);
      EXPECT_EQ(joined.amin().item<int>(), round + 2);
      EXPECT_EQ(joined.amax().item<int>(), round + 2);
    }
  }
}

TEST_F(CommChunksTest, ReusedMemoryOfTheDestinationIsWaitedFor) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const Tensor source = ones({8000}, {.device = "cuda:0"});
    for (int round = 0; round < 10; ++round) {
      for (const std::int64_t part :
           {std::int64_t{8000}, 8000 / device_count() + std::int64_t{0}}) {
        for (const Device device : devices()) {
          Tensor busy = zeros({part}, {.device = device});
          for (int i = 0; i < 3; ++i) busy.add_(1);
        }
      }
      const std::vector<Tensor> chunks = comm::scatter(source, devices());
      const Tensor joined = comm::gather(chunks, {.destination = Device::cuda(1)});
      EXPECT_EQ(joined.amin().item<int>(), 1);
      EXPECT_EQ(joined.amax().item<int>(), 1);
    }
  }
}

TEST_F(CommChunksTest, StreamsOfAScatterOwnTheirChunks) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const Stream side = Stream::from_pool(Device::cuda(1));
    for (int round = 0; round < 5; ++round) {
      Tensor source = zeros({900}, {.device = "cuda:0"});
      source.fill_(round);
      std::vector<Tensor> chunks =
          comm::scatter(source, devices(2), {.streams = {std::nullopt, side}});
      source.fill_(-1);
      const StreamGuard guard(side);
      chunks[1].add_(1);
      EXPECT_EQ(chunks[1].amin().item<int>(), round + 1);
      EXPECT_EQ(chunks[1].amax().item<int>(), round + 1);
    }
  }
}

TEST_F(CommChunksTest, StreamsComeAsAVectorOrAList) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream side = Stream::from_pool(Device::cuda(1));
  const Tensor source = ramp({900}, Device::cuda(0), 1);
  const std::vector<Stream> all{Stream::current(Device::cuda(0)), side};
  const std::vector<std::optional<Stream>> some{std::nullopt, side};
  for (const auto& chunks : {comm::scatter(source, devices(2), {.streams = all}),
                             comm::scatter(source, devices(2), {.streams = some}),
                             comm::scatter(source, devices(2), {.streams = {all[0], side}}),
                             comm::scatter(source, devices(2), {.streams = {std::nullopt, side}}),
                             comm::scatter(source, devices(2), {.streams = {all[0]}}),
                             comm::scatter(source, devices(2), {.streams = {}})}) {
    side.synchronize();
    EXPECT_EQ(comm::gather(chunks, {.destination = Device::cuda(0)}).to_vector<float>(),
              source.to_vector<float>());
  }
}

TEST_F(CommChunksTest, GivenOutputsTakeOptionsByName) {
  const Tensor source = ramp({6, 8}, Device::cuda(0), 1);
  std::vector<Tensor> out;
  for (const std::int64_t columns : {3, 5}) {
    out.push_back(zeros({6, columns}, {.dtype = f64, .device = devices().back()}));
  }
  comm::scatter(source, out, {.dim = 1, .allow_cast = true});
  EXPECT_EQ(out[1].to_vector<double>(), source.narrow(1, 3, 5).to_vector<double>());
  expect_throws<DTypeError>([&] { comm::scatter(source, out, {.dim = -1}); }, "has dtype f64");
  Tensor joined = zeros({6, 8}, {.device = Device::cuda(0)});
  comm::gather(out, joined, {.dim = -1, .allow_cast = true});
  EXPECT_EQ(joined.to_vector<float>(), source.to_vector<float>());
}

TEST_F(CommChunksTest, AllowCastConverts) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor source = ramp({64}, Device::cuda(0), 1);
  std::vector<Tensor> out;
  for (const Device device : devices()) {
    out.push_back(zeros({64 / device_count()}, {.dtype = f64, .device = device}));
  }
  if (64 % device_count() != 0)
    out.back() = zeros({64 - (64 / device_count()) * (device_count() - 1)},
                       {.dtype = f64, .device = devices().back()});
  expect_throws<DTypeError>([&] { comm::scatter(source, out); },
                            "output tensor at index 0 has dtype f64");
  comm::scatter(source, out, 0, {.allow_cast = true});
  std::vector<Tensor> mixed = out;
  mixed[0] = mixed[0].to(i32);
  expect_throws<DTypeError>(
      [&] { (void)comm::gather(mixed, {.destination = Device::cuda(0)}); },
      device_count() > 1 ? "input tensor at index 1 has dtype f64, but expected i32" : "dtype");
  const Tensor joined = comm::gather(mixed, {.destination = Device::cuda(0), .allow_cast = true});
  EXPECT_EQ(joined.dtype(), i32);
  EXPECT_EQ(joined.to_vector<double>(), source.to_vector<double>());
  Tensor place = zeros({64}, {.dtype = f32, .device = devices().back()});
  comm::gather(mixed, place, 0, {.allow_cast = true});
  EXPECT_EQ(place.to_vector<double>(), source.to_vector<double>());
}

TEST_F(CommChunksTest, OverlappingOutputsAreWrittenInListOrder) {
  const Tensor source = arange(8, {.dtype = i32, .device = "cuda:0"});
  const Tensor place = zeros({4}, {.dtype = i32, .device = devices().back()});
  std::vector<Tensor> out{place, place};
  comm::scatter(source, out);
  EXPECT_EQ(place.to_vector<int>(), (std::vector<int>{4, 5, 6, 7}));
}

TEST_F(CommChunksTest, ABatchThatFailsLeavesTheLibraryUsable) {
  GANTRY_REQUIRE_DEVICES(2);
  const TuningScope scope({.send_by_engines_bytes = 1, .fetch_by_engines_bytes = 1});
  const std::vector<Device> to = devices();
  const Tensor source = ramp({4000}, Device::cuda(0), 1);
  const Device destination = Device::cuda(0);
  for (const bool gathers : {false, true}) {
    const std::vector<Tensor> chunks = comm::scatter(source, to);
    {
      FaultDriver faults;
      faults.fail_on("copy_batch", 1);
      if (gathers) {
        EXPECT_THROW((void)comm::gather(chunks, {.destination = destination}), CudaError);
      } else {
        EXPECT_THROW((void)comm::scatter(source, to), CudaError);
      }
      EXPECT_EQ(faults.calls("copy_batch"), 1u);
    }
    for (const Device device : to) synchronize(device);
    const Tensor joined = comm::gather(comm::scatter(source, to), {.destination = destination});
    EXPECT_EQ(bits(joined), bits(source));
  }
}

TEST_F(CommChunksTest, LargeExchangesAndBroadcastsToOneDeviceAreBatches) {
  GANTRY_REQUIRE_DEVICES(2);
  const TuningScope scope({.send_by_engines_bytes = 1, .fetch_by_engines_bytes = 1});
  const std::vector<Device> pair = devices(2);
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<Tensor> joined;
  for (const Device device : pair) {
    inputs.push_back(ramp({600}, device, 1));
    outputs.push_back(zeros({600}, {.device = device}));
    joined.push_back(zeros({1200}, {.device = device}));
  }
  FaultDriver counting;
  comm::all_to_all(outputs, inputs);
  EXPECT_EQ(counting.calls("copy_batch"), 2u);
  comm::all_gather(joined, inputs);
  EXPECT_EQ(counting.calls("copy_batch"), 4u);
  (void)comm::broadcast(inputs[0], pair);
  EXPECT_EQ(counting.calls("copy_batch"), 5u);
  for (const Device device : pair) synchronize(device);
}

TEST_F(CommChunksTest, SmallScatterAndGatherAreOneLaunch) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const auto others = static_cast<std::uint64_t>(devices().size() - 1);
  const Tensor source = ones({800}, {.device = "cuda:0"});
  std::vector<Tensor> chunks;
  for (int i = 0; i < 2; ++i) chunks = comm::scatter(source, devices());
  for (const Device device : devices()) synchronize(device);
  FaultDriver counting;
  chunks = comm::scatter(source, devices());
  EXPECT_EQ(counting.calls("wait_event"), others);
  EXPECT_EQ(counting.calls("copy_batch"), 0u);
  (void)comm::gather(chunks, {.destination = Device::cuda(0)});
  EXPECT_EQ(counting.calls("wait_event"), 3 * others);
  EXPECT_EQ(counting.calls("copy_batch"), 0u);
}

TEST_F(CommChunksTest, ListsMayBeArraysAndSpans) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::array<Device, 2> pair = {Device::cuda(0), Device::cuda(1)};
  const Tensor source = ramp({6}, pair[0], 1, f32);
  const std::vector<Tensor> copies = comm::broadcast(source, pair);
  EXPECT_EQ(bits(copies[1]), bits(source));
  EXPECT_EQ(comm::broadcast(source, std::vector<std::string>{"cuda:1"})[0].device(), pair[1]);

  const std::vector<Tensor> chunks = comm::scatter(source, std::span(pair), {.dim = 0});
  const std::array<Tensor, 2> both = {chunks[0], chunks[1]};
  EXPECT_EQ(bits(comm::gather(both)), bits(source));
  EXPECT_EQ(bits(comm::gather(std::span(both), {.destination = pair[1]})), bits(source));
  EXPECT_EQ(bits(comm::reduce_add(std::span(copies), pair[1])), bits(source + source));
  EXPECT_EQ(bits(comm::broadcast_coalesced(std::span(both).first(1), {"cuda:0", "cuda:1"})[1][0]),
            bits(chunks[0]));
}

}  // namespace
}  // namespace gantry
