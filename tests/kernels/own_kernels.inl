#include <gantry/kernels/atomic.hpp>

#include <stdexcept>
#include <string>

#include "tests/kernels/own_kernels.hpp"

namespace own {

using gantry::Block;
using gantry::Stream;
using std::int64_t;

struct Fill {
  int64_t* out;
  GANTRY_HD void operator()(int64_t i) const { out[i] = 3 * i + 1; }
};
void fill(const Stream& stream, int64_t n, int64_t* out) {
  gantry::parallel_for(stream, n, Fill{out});
}

struct Axpy {
  float* y;
  const float* x;
  float alpha;
  GANTRY_HD void operator()(int64_t i) const { y[i] += alpha * x[i]; }
};
void axpy(const Stream& stream, const gantry::Tensor& y, const gantry::Tensor& x, float alpha) {
  gantry::parallel_for(stream, y.numel(), gantry::uses(x).writes(y),
                       Axpy{y.data_ptr<float>(), x.data_ptr<float>(), alpha});
}

struct DrawWords {
  gantry::PhiloxPosition at;
  int64_t blocks;
  float* out;
  GANTRY_HD void operator()(int64_t i) const {
    const gantry::PhiloxPosition here = at.resolved();
    const auto block = static_cast<std::uint64_t>(i % blocks);
    const auto offset = here.offset + static_cast<std::uint64_t>(i / blocks);
    out[i] = static_cast<float>(gantry::philox4x32_10(here.seed, block, offset).x >> 8);
  }
};
void draw_words(const Stream& stream, int64_t n, const gantry::PhiloxPosition& at, int64_t blocks,
                float* out) {
  gantry::parallel_for(stream, n, DrawWords{at, blocks, out});
}

struct LastThree {
  int64_t n;
  int64_t* out;
  GANTRY_HD void operator()(int64_t i) const {
    if (i >= n - 3) out[i - (n - 3)] = i;
  }
};
void write_last_three(const Stream& stream, int64_t n, int64_t* out) {
  gantry::parallel_for(stream, n, LastThree{n, out});
}

struct Positions {
  int64_t* out;
  GANTRY_HD void operator()(Block& block) const {
    const gantry::Index3 b = block.index();
    const gantry::Index3 t = block.thread();
    const gantry::Index3 g = block.grid();
    const gantry::Index3 s = block.size();
    int64_t code = 0;
    for (const int64_t digit : {b.x, b.y, b.z, t.x, t.y, t.z}) code = code * 100 + digit;
    out[block.flat_index()] = code * 1000000 + (g.x + g.y + g.z) * 1000 + s.x + s.y + s.z;
  }
};
void positions(const Stream& stream, gantry::Grid grid, gantry::BlockSize block, int64_t* out) {
  gantry::launch(stream, grid, block, Positions{out});
}

struct BlockSum {
  const int64_t* in;
  int64_t n;
  int64_t* out;
  GANTRY_HD void operator()(Block& block) const {
    const int64_t threads = block.size().x;
    const int64_t me = block.thread().x;
    auto* partial = block.shared<int64_t>(threads);
    partial[me] = block.flat_index() < n ? in[block.flat_index()] : 0;
    for (int64_t width = threads; width > 1; width = (width + 1) / 2) {
      block.barrier();
      const int64_t half = (width + 1) / 2;
      if (me + half < width) partial[me] += partial[me + half];
    }
    if (me == 0) out[block.index().x] = partial[0];
  }
};
void block_sums(const Stream& stream, int64_t blocks, int64_t threads, const int64_t* in, int64_t n,
                int64_t* out) {
  const auto bytes = static_cast<std::size_t>(threads) * sizeof(int64_t);
  gantry::launch(stream, blocks, gantry::BlockSize(threads).with_shared(bytes),
                 BlockSum{in, n, out});
}

struct Scan {
  const int64_t* in;
  int64_t* out;
  GANTRY_HD void operator()(Block& block) const {
    const int64_t me = block.flat_thread();
    auto* sums = block.shared<int64_t>(block.size().x);
    sums[me] = in[me];
    for (int64_t reach = 1; reach < block.size().x; reach *= 2) {
      block.barrier();
      const int64_t other = me >= reach ? sums[me - reach] : 0;
      block.barrier();
      sums[me] += other;
    }
    out[me] = sums[me];
  }
};
void block_scan(const Stream& stream, int64_t threads, const int64_t* in, int64_t* out) {
  const auto bytes = static_cast<std::size_t>(threads) * sizeof(int64_t);
  gantry::launch(stream, 1, {threads, 1, 1, bytes}, Scan{in, out});
}

struct Histogram {
  std::int32_t* counts;
  double* total;
  GANTRY_HD void operator()(int64_t i) const {
    gantry::atomic_add(counts + i % 16, std::int32_t{1});
    gantry::atomic_add(total, static_cast<double>(i));
  }
};
void histogram(const Stream& stream, int64_t n, std::int32_t* counts, double* total) {
  gantry::parallel_for(stream, n, Histogram{counts, total});
}

struct SharedLayout {
  int64_t* out;
  GANTRY_HD void operator()(Block& block) const {
    const char* first = block.shared<char>(3);
    const auto* second = reinterpret_cast<const char*>(block.shared<double>(2));
    const auto* third = reinterpret_cast<const char*>(block.shared<std::int16_t>(1));
    if (block.flat_thread() != 1) return;
    out[0] = second - first;
    out[1] = third - first;
  }
};
void shared_layout(const Stream& stream, int64_t* out) {
  gantry::launch(stream, 1, gantry::BlockSize(2).with_shared(26), SharedLayout{out});
}

struct TakeShared {
  int64_t count;
  int64_t* out;
  GANTRY_HD void operator()(Block& block) const {
    auto* taken = block.shared<double>(static_cast<std::size_t>(count));
    if (block.flat_thread() == 0) taken[count - 1] = 1;
    block.barrier();
    if (block.flat_thread() == 1 && taken[count - 1] == 1) *out = count;
  }
};
void take_shared(const Stream& stream, int64_t count, std::size_t bytes, int64_t* out) {
  gantry::launch(stream, 1, gantry::BlockSize(2).with_shared(bytes), TakeShared{count, out});
}

struct UnevenBarriers {
  int64_t most;
  GANTRY_HD void operator()(Block& block) const {
    block.barrier();
    if (block.flat_thread() < most) block.barrier();
  }
};
void uneven_barriers(const Stream& stream, int64_t threads, int64_t most) {
  gantry::launch(stream, 1, threads, UnevenBarriers{most});
}

// Counts the objects that live on the stacks of a block's threads.
struct Alive {
  std::int32_t* count;
  GANTRY_HD explicit Alive(std::int32_t* count) : count(count) { gantry::atomic_add(count, 1); }
  GANTRY_HD ~Alive() { gantry::atomic_add(count, -1); }
};
struct ThrowInThread {
  int64_t thrower;
  std::int32_t* alive;
  GANTRY_HD void operator()(Block& block) const {
    const Alive object(alive);
    block.barrier();
#ifndef __CUDA_ARCH__
    if (block.flat_thread() == thrower)
      throw std::domain_error("thread " + std::to_string(thrower));
#endif
    block.barrier();
  }
};
void throw_in_thread(const Stream& stream, int64_t threads, int64_t thrower, std::int32_t* alive) {
  gantry::launch(stream, 3, threads, ThrowInThread{thrower, alive});
}

struct ThrowInLoop {
  int64_t thrower;
  int64_t* out;
  GANTRY_HD void operator()(int64_t i) const {
#ifndef __CUDA_ARCH__
    if (i == thrower) throw std::domain_error("call " + std::to_string(i));
#endif
    out[i] = i;
  }
};
void throw_in_loop(const Stream& stream, int64_t n, int64_t thrower, int64_t* out) {
  gantry::parallel_for(stream, n, ThrowInLoop{thrower, out});
}

}  // namespace own
