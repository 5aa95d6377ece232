// A rank of a job of several ranks whose trace has all kinds of events.
#include <gantry/gantry.hpp>

#include <cstdint>
#include <vector>

namespace {

struct Twice {
  float* data;
  GANTRY_HD void operator()(std::int64_t i) const { data[i] *= 2; }
};
struct Clear {
  float* data;
  GANTRY_HD void operator()(gantry::Block& block) const { data[block.thread().x] = 0; }
};

void run_graphs(const gantry::Tensor& t) {
  using namespace gantry;
  Graph line;
  {
    const GraphCapture capture(line);
    t.add_(1).mul_(2);
  }
  Graph fork;  // with two branches
  const Stream side = Stream::from_pool(t.device());
  {
    const GraphCapture capture(fork);
    const Stream here = Stream::current(t.device());
    side.wait(here);
    t.add_(3);
    {
      const StreamGuard guard(side);
      (void)ones({16}, t.device()).mul(4);
    }
    here.wait(side);
  }
  for (int round = 0; round < 3; ++round) {
    line.replay();
    fork.replay();
  }
}

}  // namespace

int main() {
  using namespace gantry;
  const Communicator world = Communicator::world();
  const Device device = world.device();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const Tensor one = ones({64}, device);
  const Tensor all = ones({64 * world.size()}, device);
  for (int round = 0; round < 2; ++round) {
    const trace::Range range("round");
    world.all_reduce(one);
    world.all_gather(all, one);
    world.send_recv(one, next, zeros_like(one), previous);
    MessageGroup messages = world.group();
    world.send(one, next);
    world.recv(zeros_like(one), previous);
    messages.end();
  }
  const Stream stream = Stream::current(device);
  parallel_for(stream, 64, uses().writes(one), Twice{one.data_ptr<float>()});
  launch(stream, {1}, {64}, uses().writes(one), Clear{one.data_ptr<float>()});
  memory::Buffer buffer = memory::allocate(stream, 256);
  buffer.copy_from(std::vector<float>(64, 1.0F));
  std::vector<float> back(64);
  buffer.copy_to(back);
  run_graphs(one);
  synchronize(device);
  world.host_barrier();
}
