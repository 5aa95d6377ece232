#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/impl/distributions.inl"

namespace gantry::kernels::cuda {

namespace {

// Each thread computes one block of a run, and writes its elements that are in the run. A run may
// begin and end within a block.
template <class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    shard_kernel(const __grid_constant__ ShardPlace place, std::int64_t blocks_per_run, Op op,
                 Out* out) {
  constexpr int V = Op::kSize;
  detail::resolve(op);
  for (std::int64_t i = first_index(); i < place.runs * blocks_per_run; i += index_step()) {
    const std::int64_t run = i / blocks_per_run;
    const std::int64_t begin = place.first + run * place.spacing;
    const std::int64_t b = begin / V + i % blocks_per_run;
    if (b * V >= begin + place.length) continue;
    const auto block = op.block(static_cast<std::uint64_t>(b));
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const std::int64_t at = b * V + k - begin;
      if (at >= 0 && at < place.length) {
        out[run * place.length + at] = drawn<Out>(block.values[k]);
      }
    }
  }
}

class ShardLoop {
 public:
  explicit ShardLoop(void* stream) : stream_(stream) {}

  template <class Out, class Op>
  void run(const char* name, const Op& op, const TensorRef& out, const ShardPlace& place) const {
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run<Out>(name, detail::Replayed<Op>(op), out, place);
        return;
      }
    }
    const std::int64_t blocks_per_run = place.length / Op::kSize + 2;
    launch(name, stream_, blocks_for(place.runs * blocks_per_run), kThreads, 0,
           shard_kernel<Out, Op>, place, blocks_per_run, op, static_cast<Out*>(out.data));
  }

 private:
  void* stream_;
};

}  // namespace

void uniform_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_uniform_shard(ShardLoop(stream), out, at, place);
}

void normal_shard(void* stream, const TensorRef& out, RandomPosition at, const ShardPlace& place) {
  run_normal_shard(ShardLoop(stream), out, at, place);
}

void exponential(void* stream, const TensorRef& out, RandomPosition at, double rate) {
  run_distribution(Loop(stream), "exponential", out, functors::Exponential(at, rate));
}

void cauchy(void* stream, const TensorRef& out, RandomPosition at, double median, double width) {
  run_distribution(Loop(stream), "cauchy", out, functors::Cauchy(at, median, width));
}

void log_normal(void* stream, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation) {
  run_distribution(Loop(stream), "log_normal", out,
                   functors::LogNormal(at, mean, standard_deviation));
}

void geometric(void* stream, const TensorRef& out, RandomPosition at, double probability) {
  run_geometric(Loop(stream), out, at, probability);
}

void poisson(void* stream, const TensorRef& out, const TensorRef& rates, RandomPosition at) {
  run_poisson(Loop(stream), out, rates, at);
}

void categorical(void* stream, const TensorRef& out, const TensorRef& sums, RandomPosition at) {
  run_categorical(Loop(stream), out, sums, at);
}

}  // namespace gantry::kernels::cuda
