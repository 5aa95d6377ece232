// A kernel of your own that reads the memory of all ranks: the sum of all ranks, bias and ReLU in
// one launch.
//
// A thread is a rank here. The same code runs in a process for each rank, by Communicator::world().
#include <gantry/gantry.hpp>

#include <iostream>
#include <thread>
#include <vector>

namespace {

using namespace gantry;

// 1. A PeerView in a functor reaches the tensors of all ranks. barrier() is false if a rank is
// lost: the kernel ends, and the next synchronizing call throws.
struct SumBiasRelu {
  PeerView view;
  const float* bias;
  float* out;
  std::int64_t n, columns;

  GANTRY_HD void operator()(Block& block) const {
    if (!view.barrier(block)) return;  // all ranks have written
    const std::int64_t step = std::int64_t{block.grid().x} * block.size().x;
    for (std::int64_t i = block.flat_index(); i < n; i += step) {
      float sum = view.at<float>(0)[i];
      for (int rank = 1; rank < view.size(); ++rank) sum += view.at<float>(rank)[i];
      sum += bias[i % columns];
      out[i] = sum > 0 ? sum : 0;
    }
    if (!view.barrier(block)) return;  // all ranks have read
  }
};

void run_rank(const Communicator& group) {
  const TensorOptions here{.dtype = f32, .device = group.device()};
  const Tensor mine = arange(8 * 128, here).view({8, 128}).mul(0.01 * group.rank()).sub(3);
  const Tensor bias = arange(128, here).mul(0.1);
  const Tensor out = empty_like(mine);

  // 2. The window opens `mine` to all ranks. The launch names it beside the tensors.
  const Window window = group.window(mine);
  launch(Stream::current(group.device()), 4, BlockSize(128), uses(window, bias).writes(out),
         SumBiasRelu{window.view(), bias.data_ptr<float>(), out.data_ptr<float>(), out.numel(),
                     bias.numel()});

  // 3. The sum is in the order of the ranks, as that of all_reduce(): the bits are equal.
  Tensor sum = mine.clone();
  group.all_reduce(sum);
  const bool is_equal = equal(out, relu(sum.add(bias)));
  if (group.rank() == 0) std::cout << "equal to the unfused form: " << is_equal << "\n";
}

}  // namespace

int main() {
  std::vector<std::thread> ranks;
  for (const Communicator& group : Communicator::local({Device::cuda(0), Device::cuda(1)})) {
    ranks.emplace_back([group] { run_rank(group); });
  }
  for (std::thread& rank : ranks) rank.join();
}

// Output:
// equal to the unfused form: 1
