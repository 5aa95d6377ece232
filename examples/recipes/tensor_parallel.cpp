// A tensor-parallel layer: its matrices are split over the ranks, and one kernel of its own joins
// the parts of the result, adds the bias and applies ReLU.
//
// Run: glaunch tensor_parallel    (without a GPU: export GANTRY_SIM_DEVICES=4)
// The ranks must reach each other's memory.
//
//   y = relu(relu(x A) B + bias)    a rank has columns of A and the rows of B that belong to them
//
// Against an all_reduce() and two operations, the kernel saves two launches and the passes over y.
#include <gantry/gantry.hpp>

#include <iostream>

namespace {

using namespace gantry;

// 1. Each rank reduces its share of the elements, and writes the result to all ranks.
struct JoinBiasRelu {
  PeerView view;  // of a tensor [2, n] of each rank: its part, and the result
  const float* bias;
  std::int64_t n, columns;

  GANTRY_HD void operator()(Block& block) const {
    if (!view.barrier(block)) return;  // the parts of all ranks are there
    const std::int64_t end = n * (view.rank() + 1) / view.size();
    const std::int64_t threads = std::int64_t{block.grid().x} * block.size().x;
    for (std::int64_t i = n * view.rank() / view.size() + block.flat_index(); i < end;
         i += threads) {
      float sum = view.at<float>(0)[i];
      for (int rank = 1; rank < view.size(); ++rank) sum += view.at<float>(rank)[i];
      sum += bias[i % columns];
      const float result = sum > 0 ? sum : 0;
      for (int rank = 0; rank < view.size(); ++rank) view.at<float>(rank)[n + i] = result;
    }
    if (!view.barrier(block)) return;  // the results of all ranks are there
  }
};

// 2. The layer keeps its window: opening one is a collective call, and blocks the host.
class TensorParallelLayer {
 public:
  TensorParallelLayer(const Communicator& group, const Tensor& a, const Tensor& b,
                      const Tensor& bias, std::int64_t rows)
      : a_(share(group, a, 1)),
        b_(share(group, b, 0)),
        bias_(bias),
        parts_(empty({2, rows, b.size(1)}, group.device())),
        window_(group.window(parts_)) {}
  // Work that reads the result of the last call must be complete or on the current stream.
  Tensor forward(const Tensor& x) const {
    Tensor part = parts_[0];
    matmul_out(part, relu(matmul(x, a_)), b_);
    launch(Stream::current(x.device()), 8, BlockSize(128), uses(window_, bias_).writes(parts_),
           JoinBiasRelu{window_.view(), bias_.data_ptr<float>(), part.numel(), b_.size(1)});
    return parts_[1];
  }
  // The same by operations of the library.
  Tensor unfused(const Communicator& group, const Tensor& x) const {
    const Tensor sum = matmul(relu(matmul(x, a_)), b_);
    group.all_reduce(sum);
    return relu(sum + bias_);
  }

 private:
  static Tensor share(const Communicator& group, const Tensor& whole, int dim) {
    return whole.tensor_split(group.size(), dim)[static_cast<std::size_t>(group.rank())]
        .contiguous();
  }

  Tensor a_, b_, bias_, parts_;
  Window window_;
};

}  // namespace

int main() {
  const Communicator world = Communicator::world();
  const Device device = world.device();
  const std::int64_t rows = 32, inner = 256, hidden = 1000, outer = 128;
  manual_seed(7);  // all ranks draw the same numbers
  const Tensor a = randn({inner, hidden}, device).mul(0.06);
  const Tensor b = randn({hidden, outer}, device).mul(0.03);
  const Tensor bias = randn({outer}, device);
  const TensorParallelLayer layer(world, a, b, bias, rows);

  // 3. The kernel waits for all ranks, also inside a graph.
  Graph graph;
  const Tensor x = empty({rows, inner}, device);
  Tensor y;
  {
    const GraphCapture capture(graph);
    y = layer.forward(x);
  }
  bool is_equal = true, is_close = true;
  for (int request = 0; request < 5; ++request) {
    x.copy_(randn({rows, inner}, device));
    const Tensor unfused = layer.unfused(world, x);
    graph.replay();
    is_equal = is_equal && equal(y, unfused);
    const Tensor whole = relu(matmul(relu(matmul(x, a)), b) + bias);
    is_close = is_close && allclose(y, whole, 1e-4, 1e-4);
  }
  world.barrier().synchronize();  // the window ends when all ranks have used it
  if (world.rank() == 0) {
    std::cout << "equal to the unfused layer: " << is_equal << "\n"
              << "close to the undivided layer: " << is_close << "\n";
  }
  return is_equal && is_close ? 0 : 1;
}
// Output:
// [0] equal to the unfused layer: 1
// [0] close to the undivided layer: 1
