// An own kernel: one source for GPUs and for simulated devices.
//
// nvcc makes a GPU kernel of a functor, any other compiler a task of a simulated device.
#include <gantry/gantry.hpp>

#include <iostream>

namespace {

using namespace gantry;

// 1. The work of one index. A functor is copied to the device: it holds pointers and numbers.
struct Saxpy {
  float* y;
  const float* x;
  float alpha;
  GANTRY_HD void operator()(std::int64_t i) const { y[i] += alpha * x[i]; }
};

// 2. The work of one thread of a block, with a barrier and shared memory: the sum of each block.
struct BlockSums {
  const float* in;
  float* out;
  GANTRY_HD void operator()(Block& block) const {
    const std::uint32_t me = block.thread().x;
    float* partial = block.shared<float>(block.size().x);
    partial[me] = in[block.flat_index()];
    for (std::uint32_t half = block.size().x / 2; half > 0; half /= 2) {
      block.barrier();
      if (me < half) partial[me] += partial[me + half];
    }
    if (me == 0) out[block.index().x] = partial[0];
  }
};

}  // namespace

int main() {
  const Stream stream = Stream::current("cuda:0");
  const Tensor x = arange(1024, {.dtype = f32, .device = "cuda:0"});
  const Tensor y = ones({1024}, "cuda:0");

  // 3. uses() checks the devices of the tensors and keeps their memory until the kernel is done.
  parallel_for(stream, y.numel(), uses(x).writes(y),
               Saxpy{y.data_ptr<float>(), x.data_ptr<float>(), 2});
  std::cout << "y[3]: " << y[3].item<float>() << "\n";

  // 4. Eight blocks of 128 threads.
  const Tensor sums = empty({8}, "cuda:0");
  launch(stream, 8, BlockSize(128).with_shared(128 * sizeof(float)), uses(y).writes(sums),
         BlockSums{y.data_ptr<float>(), sums.data_ptr<float>()});
  std::cout << "sums of blocks are right: " << allclose(sums.sum(), y.sum()) << "\n";

  // 5. A launch is work of its stream like any other: it can be captured.
  Graph graph;
  {
    const GraphCapture capture(graph);
    parallel_for(capture.stream(), y.numel(), uses(x).writes(y),
                 Saxpy{y.data_ptr<float>(), x.data_ptr<float>(), -1});
  }
  graph.replay();
  graph.replay();
  std::cout << "after two replays y is 1 again: " << (y == 1).all().item<bool>() << "\n";
}
// Output:
// y[3]: 7
// sums of blocks are right: 1
// after two replays y is 1 again: 1
