#include <gantry/core/dtype.hpp>
#include <gantry/kernels/launch.hpp>
#include <gantry/tensor/uses.hpp>

#include "tests/collectives/windows/view_kernels.hpp"

namespace view_kernels {

using gantry::Block;
using gantry::BlockSize;
using gantry::Grid;
using gantry::PeerView;
using gantry::Stream;
using gantry::Tensor;
using gantry::uses;
using gantry::Window;

namespace {

GANTRY_HD int next_of(const PeerView& view) { return (view.rank() + 1) % view.size(); }
GANTRY_HD int previous_of(const PeerView& view) {
  return (view.rank() + view.size() - 1) % view.size();
}

struct Fused {
  PeerView view;
  const float* bias;
  float* out;
  std::int64_t n;
  std::int64_t columns;

  GANTRY_HD void operator()(Block& block) const {
    if (!view.barrier(block)) return;
    const std::int64_t step = std::int64_t{block.grid().x} * block.size().x;
    for (std::int64_t i = block.flat_index(); i < n; i += step) {
      float sum = view.at<float>(0)[i];
      for (int rank = 1; rank < view.size(); ++rank) sum += view.at<float>(rank)[i];
      sum += bias[i % columns];
      out[i] = sum > 0 ? sum : 0;
    }
    if (!view.barrier(block)) return;
  }
};

struct Ring {
  PeerView view;
  std::int32_t* wrong;
  int rounds;

  GANTRY_HD void operator()(Block& block) const {
    const int next = next_of(view);
    const int previous = previous_of(view);
    const auto me = static_cast<std::size_t>(block.flat_thread());
    for (int round = 0; round < rounds; ++round) {
      view.at<float>(next)[me] = static_cast<float>(1000 * round + view.rank());
      block.barrier();
      bool failed = false;
      if (me == 0) {
        view.signal(next, 3);
        failed = !view.wait(previous, 3);
      }
      if (block.any(failed)) return;
      if (view.at<float>(view.rank())[me] != static_cast<float>(1000 * round + previous)) {
        *wrong += 1;
      }
      block.barrier();
      if (me == 0) {
        view.signal(previous, 4);  // the buffer is free
        failed = !view.wait(next, 4);
      }
      if (block.any(failed)) return;
    }
  }
};

struct Crowd {
  PeerView view;
  std::int32_t* taken;

  GANTRY_HD void operator()(Block& block) const {
    view.signal(next_of(view), 5);
    if (view.wait(previous_of(view), 5)) taken[block.flat_index()] += 1;
  }
};

struct Roles {
  PeerView view;
  std::int32_t* taken;

  GANTRY_HD void operator()(Block& block) const {
    using Index = std::int64_t;
    const Index last = static_cast<Index>(block.size().x) - 1;
    const Index me = block.flat_thread();
    if (me == 0 && view.wait(previous_of(view), 6)) taken[0] += 1;
    if (me == last) view.signal(next_of(view), 6);
  }
};

template <class T>
struct Put {
  PeerView view;
  const T* from;
  std::int64_t offset;
  std::int64_t n;

  GANTRY_HD void operator()(Block& block) const {
    view.put(block, next_of(view), static_cast<std::size_t>(offset), from,
             static_cast<std::size_t>(n));
    if (!view.barrier(block)) return;
  }
};

template <class T>
struct GatherLl {
  PeerView view;
  const T* mine;
  T* all;
  std::int64_t n;
  int rounds;
  int first;

  GANTRY_HD void operator()(Block& block) const {
    const auto count = static_cast<std::size_t>(n);
    const std::size_t bytes = PeerView::ll_bytes<T>(count);
    for (int flag = first; flag < first + rounds; ++flag) {
      // A rank that has this round's packets of all knows that all have taken the packets of the
      // round before.
      const std::size_t buffer = flag % 2 == 0 ? 0 : bytes * static_cast<std::size_t>(view.size());
      for (int turn = 0; turn < view.size(); ++turn) {
        const int peer = (view.rank() + turn) % view.size();
        view.put_ll(block, peer, buffer + bytes * static_cast<std::size_t>(view.rank()), mine,
                    count, static_cast<std::uint32_t>(flag));
      }
      for (int peer = 0; peer < view.size(); ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (!view.get_ll(block, peer, buffer + bytes * at, all + count * at, count,
                         static_cast<std::uint32_t>(flag))) {
          return;
        }
      }
    }
  }
};

struct Counts {
  PeerView view;
  std::int32_t* taken;
  int signals;
  int waits;

  GANTRY_HD void operator()(std::int64_t) const {
    if (view.rank() == 0) {
      for (int i = 0; i < signals; ++i) view.signal(1, 7);
    } else if (view.rank() == 1) {
      for (int i = 0; i < waits; ++i) *taken += view.wait(0, 7) ? 1 : 0;
    }
  }
};

struct Wait {
  PeerView view;
  std::int32_t* taken;
  int rank;
  int channel;

  GANTRY_HD void operator()(std::int64_t) const { *taken = view.wait(rank, channel) ? 1 : -1; }
};

struct Signal {
  PeerView view;
  int rank;
  int channel;

  GANTRY_HD void operator()(std::int64_t) const { view.signal(rank, channel); }
};

struct Meet {
  PeerView view;
  std::int32_t* results;
  int rounds;

  GANTRY_HD void operator()(Block& block) const {
    for (int round = 0; round < rounds; ++round) {
      if (!view.barrier(block)) return;
      results[block.flat_index()] += 1;
    }
  }
};

std::int32_t* words(const Tensor& tensor) { return tensor.data_ptr<std::int32_t>(); }

}  // namespace

void fused(const Stream& stream, const Window& window, const Tensor& bias, const Tensor& out,
           int blocks, int threads) {
  launch(stream, Grid(blocks), BlockSize(threads), uses(window, bias).writes(out),
         Fused{window.view(), bias.data_ptr<float>(), out.data_ptr<float>(), out.numel(),
               bias.numel()});
}

void ring(const Stream& stream, const Window& window, const Tensor& wrong, int rounds) {
  launch(stream, Grid(1), BlockSize(32), uses(window).writes(wrong),
         Ring{window.view(), words(wrong), rounds});
}

void crowd(const Stream& stream, const Window& window, const Tensor& taken, int blocks,
           int threads) {
  launch(stream, Grid(blocks), BlockSize(threads), uses(window).writes(taken),
         Crowd{window.view(), words(taken)});
}

void roles(const Stream& stream, const Window& window, const Tensor& taken, int threads) {
  launch(stream, Grid(1), BlockSize(threads), uses(window).writes(taken),
         Roles{window.view(), words(taken)});
}

void put(const Stream& stream, const Window& window, const Tensor& from, std::int64_t offset,
         std::int64_t n) {
  const auto with = [&](auto* first) {
    using T = std::remove_pointer_t<decltype(first)>;
    launch(stream, Grid(1), BlockSize(64), uses(window, from),
           Put<T>{window.view(), first, offset, n});
  };
  if (from.dtype() == gantry::u8) return with(from.data_ptr<std::uint8_t>());
  if (from.dtype() == gantry::i32) return with(from.data_ptr<std::int32_t>());
  with(from.data_ptr<double>());
}

void gather_ll(const Stream& stream, const Window& window, const Tensor& mine, const Tensor& all,
               int rounds, int first) {
  const auto with = [&](auto* from) {
    using T = std::remove_pointer_t<decltype(from)>;
    launch(stream, Grid(1), BlockSize(96), uses(window, mine).writes(all),
           GatherLl<T>{window.view(), from, all.data_ptr<T>(), mine.numel(), rounds, first});
  };
  if (mine.dtype() == gantry::u8) return with(mine.data_ptr<std::uint8_t>());
  if (mine.dtype() == gantry::f32) return with(mine.data_ptr<float>());
  with(mine.data_ptr<double>());
}

void counts(const Stream& stream, const Window& window, const Tensor& taken, int signals,
            int waits) {
  parallel_for(stream, 1, uses(window).writes(taken),
               Counts{window.view(), words(taken), signals, waits});
}

void wait(const Stream& stream, const Window& window, const Tensor& taken, int rank, int channel) {
  parallel_for(stream, 1, uses(window).writes(taken),
               Wait{window.view(), words(taken), rank, channel});
}

void signal(const Stream& stream, const Window& window, int rank, int channel) {
  parallel_for(stream, 1, uses(window), Signal{window.view(), rank, channel});
}

void meet(const Stream& stream, const Window& window, const Tensor& results, int blocks,
          int threads, int rounds) {
  launch(stream, Grid(blocks), BlockSize(threads), uses(window).writes(results),
         Meet{window.view(), words(results), rounds});
}

}  // namespace view_kernels
