// comm::* and a communicator of one process through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;

class ApiCommTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(2);
  }
  // values, values + 1, … one tensor a device.
  static std::vector<Tensor> on_both(const Tensor& values) {
    return {values.to("cuda:0", {.copy = true}), (values + 1).to("cuda:1")};
  }
};

TEST_F(ApiCommTest, Broadcasts) {
  const Tensor t = arange(4, {.device = "cuda:0"});
  const std::vector<Tensor> copies = comm::broadcast(t, {Device::cuda(0), Device::cuda(1)});
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_TRUE(copies[0].is_view_of(t));
  EXPECT_EQ(copies[1].device(), Device::cuda(1));
  EXPECT_TRUE(copies[1].cpu().equal(t.cpu()));
  EXPECT_TRUE(comm::broadcast(t.cpu(), {"cuda:1", "cuda:0"})[0].cpu().equal(t.cpu()));
  std::vector<Tensor> out = on_both(zeros({4}, {.dtype = i64}));
  comm::broadcast(t, out);
  for (const Tensor& copy : out) EXPECT_TRUE(copy.cpu().equal(t.cpu()));
}

TEST_F(ApiCommTest, BroadcastsCoalesced) {
  const std::vector<Tensor> tensors{ones({3}, {.device = "cuda:0"}),
                                    arange(4, {.device = "cuda:0"})};
  const std::vector<Device> devices{"cuda:0", "cuda:1"};
  const auto copies = comm::broadcast_coalesced(tensors, devices);
  ASSERT_EQ(copies.size(), 2u);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(copies[1][i].device(), Device::cuda(1));
    EXPECT_TRUE(copies[1][i].cpu().equal(tensors[i].cpu()));
  }
  EXPECT_EQ(comm::broadcast_coalesced(tensors, devices, 1 << 10).size(), 2u);
}

TEST_F(ApiCommTest, ReducesByAdding) {
  const std::vector<Tensor> inputs = on_both(arange(3));
  EXPECT_THAT(comm::reduce_add(inputs, Device::cuda(1)).to_vector<int>(), ElementsAre(1, 3, 5));
  EXPECT_EQ(comm::reduce_add(inputs, "cuda:1").device(), Device::cuda(1));
  EXPECT_EQ(comm::reduce_add(inputs).device(), Device::cuda(0));
  const std::vector<std::vector<Tensor>> lists{{inputs[0], inputs[0]}, {inputs[1], inputs[1]}};
  const std::vector<Tensor> sums = comm::reduce_add_coalesced(lists, Device::cuda(0), 1 << 20);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_THAT(sums[1].to_vector<int>(), ElementsAre(1, 3, 5));
}

TEST_F(ApiCommTest, ScattersAndGathers) {
  const Tensor t = arange(10, {.device = "cuda:0"}).view({5, 2});
  const std::vector<Device> devices{"cuda:0", "cuda:1"};
  const std::vector<Tensor> pieces = comm::scatter(t, devices);
  EXPECT_EQ(pieces[0].size(0) + pieces[1].size(0), 5);
  EXPECT_EQ(pieces[1].device(), Device::cuda(1));
  EXPECT_TRUE(comm::gather(pieces).equal(t));
  const std::vector<Tensor> sized = comm::scatter(t, devices, {.chunk_sizes = {1, 4}, .dim = 0});
  EXPECT_EQ(sized[1].sizes(), Shape({4, 2}));
  const Tensor host = comm::gather(sized, {.dim = 0, .destination = Device::cpu()});
  synchronize("cuda:0");
  synchronize("cuda:1");
  EXPECT_TRUE(host.is_pinned());
  EXPECT_TRUE(host.equal(t.cpu()));
  EXPECT_EQ(comm::gather(sized, {.destination = "cuda:1"}).device(), Device::cuda(1));
  EXPECT_EQ(comm::scatter(t, {"cuda:0", "cuda:1"}, {.dim = 1})[1].sizes(), Shape({5, 1}));
}

TEST_F(ApiCommTest, ScattersOnGivenStreams) {
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(1));
  const std::vector<Tensor> pieces =
      comm::scatter(arange(4), {"cuda:0", "cuda:1"}, {.streams = {first, second}});
  Stream::current(Device::cuda(1)).wait(second);
  EXPECT_THAT(pieces[1].to_vector<int>(), ElementsAre(2, 3));
  synchronize("cuda:0");
}

TEST_F(ApiCommTest, AllReduces) {
  std::vector<Tensor> tensors = on_both(arange(3));
  comm::all_reduce(tensors, ReduceOp::sum);
  for (const Tensor& t : tensors) EXPECT_THAT(t.to_vector<int>(), ElementsAre(1, 3, 5));
  std::vector<Tensor> others = on_both(arange(3));
  comm::all_reduce(others, ReduceOp::max);
  for (const Tensor& t : others) EXPECT_THAT(t.to_vector<int>(), ElementsAre(1, 2, 3));
  std::vector<Tensor> means = on_both(zeros({2}));
  comm::all_reduce(means, ReduceOp::avg);
  EXPECT_THAT(means[0].to_vector<float>(), ElementsAre(0.5f, 0.5f));
}

TEST_F(ApiCommTest, GathersScattersAndExchangesAmongAll) {
  const std::vector<Tensor> inputs = on_both(arange(2));
  std::vector<Tensor> gathered = on_both(zeros({4}, {.dtype = i64}));
  comm::all_gather(gathered, inputs);
  for (const Tensor& t : gathered) EXPECT_THAT(t.to_vector<int>(), ElementsAre(0, 1, 1, 2));
  std::vector<Tensor> rows = on_both(zeros({1}, {.dtype = i64}));
  comm::reduce_scatter(rows, inputs, ReduceOp::sum);
  EXPECT_EQ(rows[0].item<int>(), 1);
  EXPECT_EQ(rows[1].item<int>(), 3);
  std::vector<Tensor> exchanged = on_both(zeros({2}, {.dtype = i64}));
  comm::all_to_all(exchanged, inputs);
  EXPECT_THAT(exchanged[0].to_vector<int>(), ElementsAre(0, 1));
  EXPECT_THAT(exchanged[1].to_vector<int>(), ElementsAre(1, 2));
}

TEST_F(ApiCommTest, RefusesUnequalTensors) {
  std::vector<Tensor> unequal{zeros({2}, {.device = "cuda:0"}), zeros({3}, {.device = "cuda:1"})};
  EXPECT_THROW(comm::all_reduce(unequal), ShapeError);
  EXPECT_THROW((void)comm::reduce_add({}), InvalidArgument);
  EXPECT_THROW((void)comm::broadcast(zeros({2}), std::vector<Device>{}), InvalidArgument);
}

class ApiCommunicatorTest : public gantry::testing::DeviceTest {};

TEST_F(ApiCommunicatorTest, WorldOfOneProcess) {
  Communicator world = Communicator::world();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.local_rank(), 0);
  EXPECT_EQ(world.local_size(), 1);
  EXPECT_EQ(world.device(), current_device());
  EXPECT_EQ(world.device_map().size(), 1u);
}

TEST_F(ApiCommunicatorTest, OperationsOfOneProcess) {
  const Communicator world = Communicator::world();  // a handle, which does all if it is const, too
  Tensor t = arange(4, {.dtype = f32, .device = world.device()});
  Work work = world.all_reduce(t, ReduceOp::sum);
  work.wait();
  work.synchronize();
  EXPECT_TRUE(work.query());
  world.all_reduce(t).wait();
  world.all_reduce(t, ReduceOp::max, {.reproducible = false});
  world.broadcast(t, 0).synchronize();
  EXPECT_THAT(t.to_vector<int>(), ElementsAre(0, 1, 2, 3));
  Tensor out = zeros_like(t);
  world.all_gather(out, t).wait();
  EXPECT_TRUE(out.equal(t));
  out.zero_();
  world.reduce_scatter(out, t).wait();
  EXPECT_TRUE(out.equal(t));
  std::vector<Tensor> many{t, out};
  world.all_reduce_coalesced(many).wait();
  EXPECT_TRUE(many[1].equal(t));
  world.barrier().synchronize();
}

TEST_F(ApiCommunicatorTest, RefusesBadInput) {
  Communicator world = Communicator::world();
  Tensor t = zeros({2}, {.device = world.device()});
  Tensor host = zeros({2});
  EXPECT_THROW(world.broadcast(t, 1), InvalidArgument);
  EXPECT_THROW(world.all_reduce(host), DeviceMismatchError);
}

}  // namespace
