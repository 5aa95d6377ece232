// Kernels of the program that wait for kernels of other ranks, which one thread launches one after
// the other.
//
//   window_kernels_program FORM: what the launches name. none, window, pads, peers, mine, graph
//   (a window, in a captured graph), loop (a window, in a loop of a captured graph)
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <gantry/gantry.hpp>

namespace {

using namespace gantry;

constexpr int kRanks = 2;
constexpr int kRounds = 20;

// Writes this rank's number to the other rank, signals it, and waits for its signal.
struct Exchange {
  std::int64_t* out;  // words of the pads
  std::int64_t* in;
  float* theirs;
  float value;

  void operator()(std::int64_t) const {
    while (std::atomic_ref(*out).load(std::memory_order_acquire) != 0) std::this_thread::yield();
    std::atomic_ref(*theirs).store(value, std::memory_order_relaxed);
    std::atomic_ref(*out).store(1, std::memory_order_release);
    while (std::atomic_ref(*in).load(std::memory_order_acquire) != 1) std::this_thread::yield();
    std::atomic_ref(*in).store(0, std::memory_order_release);
  }
  void operator()(Block&) const { (*this)(0); }
};

struct Rank {
  Communicator group;
  Tensor mine;
  Window window;
  Tensor turns;
  Graph graph;
};

Exchange exchange_of(const Rank& rank) {
  const int me = rank.window.rank();
  return {rank.window.signal_pad(1 - me).data_ptr<std::int64_t>() + me,
          rank.window.signal_pad(me).data_ptr<std::int64_t>() + (1 - me),
          rank.window.peer(1 - me).data_ptr<float>(), static_cast<float>(me + 1)};
}

void launch_exchange(const Rank& rank, const std::string& form, int round) {
  const int me = rank.window.rank();
  const Stream stream = Stream::current(rank.group.device());
  const auto with = [&](const auto&... named) {
    if (round % 2 == 0) {
      parallel_for(stream, 1, named..., exchange_of(rank));
    } else {
      launch(stream, Grid(1), BlockSize(1), named..., exchange_of(rank));
    }
  };
  if (form == "none") return with();
  if (form == "pads") return with(uses(rank.window.signal_pad(1 - me), rank.window.signal_pad(me)));
  if (form == "peers") return with(uses().writes(rank.window.peer(1 - me)));
  if (form == "mine") return with(uses(rank.mine.narrow(0, 3, 2)));
  with(uses(rank.window, rank.mine));
}

void capture(Rank& rank, const std::string& form) {
  const Stream stream = Stream::from_pool(rank.group.device());
  synchronize(rank.group.device());
  const GraphCapture scope(rank.graph, {.stream = stream});
  if (form == "graph") {
    for (int round = 0; round < kRounds; ++round) launch_exchange(rank, form, round);
    return;
  }
  graph_while(rank.turns, [&] {
    launch_exchange(rank, form, 0);
    rank.turns.sub_(1);
  });
}

int run(const std::string& form) {
  const std::vector<Device> devices{Device::cuda(0), Device::cuda(1)};
  std::vector<Communicator> groups = Communicator::local(devices);
  std::vector<Rank> ranks(kRanks);
  std::vector<std::thread> makers;
  for (std::size_t r = 0; r < kRanks; ++r) {
    Rank& rank = ranks[r];
    rank.group = groups[r];
    rank.mine = zeros({64}, {.dtype = f32, .device = devices[r]});
    rank.turns = full({}, kRounds, {.dtype = i32, .device = devices[r]});
    makers.emplace_back([&rank] { rank.window = rank.group.window(rank.mine); });
  }
  for (std::thread& maker : makers) maker.join();
  if (form == "graph" || form == "loop") {
    for (Rank& rank : ranks) capture(rank, form);
    for (Rank& rank : ranks) rank.graph.replay();
  } else {
    for (int round = 0; round < kRounds; ++round) {
      for (const Rank& rank : ranks) launch_exchange(rank, form, round);
    }
  }
  for (const Device device : devices) synchronize(device);
  for (int r = 0; r < kRanks; ++r) {
    const Tensor& mine = ranks[static_cast<std::size_t>(r)].mine;
    if (mine[0].item<float>() == static_cast<float>(2 - r)) continue;
    std::fprintf(stderr, "rank %d received %g\n", r, mine[0].item<double>());
    return 1;
  }
  std::puts("ok");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  try {
    return run(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
