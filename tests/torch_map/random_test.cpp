// Rows about random numbers and several devices, and the notes on CUDA semantics.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace {

using namespace gantry;
using gantry::testing::TorchCudaMapTest;
using ::testing::ElementsAre;

TEST_F(TorchCudaMapTest, ManualSeed) {
  manual_seed(1);
  const Tensor first = rand({4}, "cuda:0");
  manual_seed_all(1);
  EXPECT_TRUE(rand({4}, "cuda:0").equal(first));
}

TEST_F(TorchCudaMapTest, Seed) {
  const std::uint64_t drawn = seed();
  EXPECT_EQ(initial_seed(), drawn);
  const std::uint64_t all = seed_all();
  EXPECT_EQ(initial_seed(), all);
}

TEST_F(TorchCudaMapTest, RngState) {
  const Tensor state = get_rng_state("cuda:0");
  const Tensor first = rand({4}, "cuda:0");
  set_rng_state(state, "cuda:0");
  EXPECT_TRUE(rand({4}, "cuda:0").equal(first));
}

TEST_F(TorchCudaMapTest, RngStateAll) {
  const std::vector<Tensor> states = get_rng_state_all();
  const Tensor first = rand({4}, "cuda:0");
  set_rng_state_all(states);
  EXPECT_TRUE(rand({4}, "cuda:0").equal(first));
}

TEST_F(TorchCudaMapTest, DefaultGenerators) {
  EXPECT_EQ(default_generator("cuda:0").device(), Device::cuda(0));
}

class TorchCudaMapComm : public TorchCudaMapTest {
 protected:
  void SetUp() override {
    TorchCudaMapTest::SetUp();
    GANTRY_REQUIRE_DEVICES(2);
  }
  const std::vector<Device> devices{"cuda:0", "cuda:1"};
};

TEST_F(TorchCudaMapComm, Broadcast) {
  const Tensor t = ones({2}, "cuda:0");
  EXPECT_TRUE(comm::broadcast(t, devices)[1].cpu().equal(t.cpu()));
}

TEST_F(TorchCudaMapComm, BroadcastCoalesced) {
  const std::vector<Tensor> list{ones({2}, "cuda:0"), zeros({3}, "cuda:0")};
  EXPECT_EQ(comm::broadcast_coalesced(list, devices)[1][1].device(), devices[1]);
}

TEST_F(TorchCudaMapComm, ReduceAdd) {
  const std::vector<Tensor> list{ones({2}, "cuda:0"), ones({2}, "cuda:1")};
  EXPECT_THAT(comm::reduce_add(list, "cuda:1").to_vector<float>(), ElementsAre(2, 2));
  Tensor out = empty({2}, "cuda:0");
  comm::reduce_add(list, out);
  EXPECT_THAT(out.to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapComm, ReduceAddCoalesced) {
  const std::vector<std::vector<Tensor>> lists{{ones({2}, "cuda:0")}, {ones({2}, "cuda:1")}};
  EXPECT_THAT(comm::reduce_add_coalesced(lists, "cuda:0")[0].to_vector<float>(), ElementsAre(2, 2));
  std::vector<Tensor> outs{empty({2}, "cuda:1")};
  comm::reduce_add_coalesced(lists, outs);
  EXPECT_THAT(outs[0].to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapComm, Scatter) {
  const Tensor t = arange(4, "cuda:0");
  EXPECT_EQ(comm::scatter(t, devices)[1].device(), devices[1]);
}

TEST_F(TorchCudaMapComm, Gather) {
  const std::vector<Tensor> list{ones({2}, "cuda:0"), zeros({2}, "cuda:1")};
  EXPECT_THAT(comm::gather(list, {.destination = "cuda:0"}).to_vector<float>(),
              ElementsAre(1, 1, 0, 0));
}

TEST_F(TorchCudaMapComm, AllReduce) {
  std::vector<Tensor> tensors{ones({2}, "cuda:0"), ones({2}, "cuda:1")};
  comm::all_reduce(tensors);
  EXPECT_THAT(tensors[1].to_vector<float>(), ElementsAre(2, 2));
  std::vector<Tensor> gathered{empty({4}, "cuda:0"), empty({4}, "cuda:1")};
  comm::all_gather(gathered, tensors);
  EXPECT_THAT(gathered[0].to_vector<float>(), ElementsAre(2, 2, 2, 2));
  const std::vector<Tensor> wholes{ones({4}, "cuda:0"), ones({4}, "cuda:1")};
  std::vector<Tensor> parts{empty({2}, "cuda:0"), empty({2}, "cuda:1")};
  comm::reduce_scatter(parts, wholes);
  EXPECT_THAT(parts[1].to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapComm, BroadcastInto) {
  const Tensor t = ones({2}, "cuda:0");
  std::vector<Tensor> out{empty({2}, "cuda:1")};
  comm::broadcast(t, out);
  EXPECT_THAT(out[0].to_vector<float>(), ElementsAre(1, 1));
  const std::vector<Tensor> tensors{t, out[0]};
  Tensor sum = empty({2}, "cuda:0");
  comm::reduce_add(tensors, sum);
  EXPECT_THAT(sum.to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapTest, NotePlacement) {
  const Tensor x = tensor({1.0, 2.0}, "cuda:0");
  const Tensor y = x.new_tensor({3.0, 4.0});
  EXPECT_EQ(x.add(y).device(), x.device());
  EXPECT_EQ(zeros_like(x).device(), x.device());
  if (device_count() < 2 || !can_access_peer("cuda:0", "cuda:1")) return;
  const Tensor far = y.to("cuda:1");
  EXPECT_THROW((void)x.add(far), DeviceMismatchError);
  const PeerOperands peers;
  EXPECT_TRUE(x.add(far).equal(x.add(y)));
}

TEST_F(TorchCudaMapTest, NoteMatmulPrecision) {
  const Tensor a = ones({2, 2}, {.dtype = f16, .device = "cuda:0"});
  EXPECT_EQ(matmul(a, a).sum().item<float>(), 8);
}

TEST_F(TorchCudaMapTest, NoteAsynchronous) {
  const Event start({.timing = true});
  Event end({.timing = true});
  Event begin({.timing = true});
  begin.record();
  const Tensor t = ones({1000}, "cuda:0").add(1);
  end.record();
  end.synchronize();
  EXPECT_GE(begin.elapsed_ms(end), 0);
}

TEST_F(TorchCudaMapTest, NoteStreams) {
  const Stream side = Stream::from_pool("cuda:0");
  const Tensor t = ones({1000}, "cuda:0");
  side.wait(Stream::current());
  Tensor u;
  {
    StreamGuard guard(side);
    u = t.add(1);
    t.record_stream(side);
  }
  Stream::current().wait(side);
  EXPECT_EQ(u.sum().item<float>(), 2000);
}

TEST_F(TorchCudaMapTest, NotePinned) {
  const Tensor host = ones({2}).pin_memory();
  const Tensor t = host.to("cuda:0", {.non_blocking = true});
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(1, 1));
}

TEST_F(TorchCudaMapTest, NoteDeviceAgnostic) {
  const Device device = is_available() ? Device("cuda") : Device("cpu");
  EXPECT_EQ(zeros({2}, device).device().type, device.type);
}

TEST_F(TorchCudaMapTest, NoteDataParallel) {
  Communicator world = Communicator::world();
  Tensor gradient = ones({2}, world.device());
  world.all_reduce(gradient);
  EXPECT_THAT(gradient.to_vector<float>(), ElementsAre(1, 1));
}

}  // namespace
