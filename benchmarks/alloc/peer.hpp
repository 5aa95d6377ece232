// Measures one allocator. Each program of this folder defines a peer and hands it to peer_main, so
// that all are timed by the same code.
//
// A peer has
//   using Handle;                                   what names a block
//   void begin(std::uint64_t limit_bytes);          starts with nothing held; 0: no limit
//   Handle allocate(std::size_t bytes);             an empty handle if memory is out
//   void free(Handle& handle, std::size_t bytes);
//   static bool is_empty(const Handle&);
//   std::uint64_t peak_reserved();                  bytes held from the driver since begin()
//
//   PEER micro [--quick] [CORE]      lines "name nanoseconds"; one thread's calls on that core
//   PEER replay SECONDS DUMP@LIMIT…  lines "replay DUMP@LIMIT first_ns warm_ns peak_reserved ooms
//   done ops"
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "steps.hpp"

namespace gantry::benchmarks {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration time) {
  return std::chrono::duration<double, std::nano>(time).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Keeps the calling thread on one core while it lives; cores below 0: where it likes.
class OnCore {
 public:
  explicit OnCore(int core) {
    sched_getaffinity(0, sizeof before_, &before_);
    if (core < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
      throw std::runtime_error("core " + std::to_string(core) + " cannot be used");
    }
  }
  ~OnCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnCore(OnCore&&) = delete;

 private:
  cpu_set_t before_;
};

// Median time of one call, over batches.
template <class Call>
double time_calls(int rounds, int batch, Call call) {
  for (int i = 0; i < batch; ++i) call();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < batch; ++i) call();
    times.push_back(nanoseconds(Clock::now() - start) / batch);
  }
  return median(times);
}

// Time of one call when `threads` threads make `calls` each, over all of them: wall time divided by
// the number of calls.
template <class MakeCall>
double time_threads_once(int threads, int calls, MakeCall make_call) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<int> running{threads};
  Clock::time_point end;  // written by the last thread
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      auto call = make_call(t);
      for (int i = 0; i < 64; ++i) call();
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      for (int i = 0; i < calls; ++i) call();
      if (running.fetch_sub(1) == 1) end = Clock::now();
    });
  }
  while (ready.load() != threads) std::this_thread::yield();
  const auto start = Clock::now();
  go.store(true);
  for (std::thread& worker : workers) worker.join();
  return nanoseconds(end - start) / (static_cast<double>(calls) * threads);
}

template <class MakeCall>
double time_threads(int threads, int calls, MakeCall make_call) {
  std::vector<double> times;
  for (int round = 0; round < 5; ++round) {
    times.push_back(time_threads_once(threads, calls, make_call));
  }
  return median(times);
}

// A live set whose blocks go back in the end.
template <class Peer>
class LiveSet {
 public:
  LiveSet(Peer& peer, std::size_t blocks, LiveSetSteps steps)
      : peer_(&peer), steps_(std::move(steps)), live_(blocks) {
    for (Entry& entry : live_) fill(entry);
  }
  ~LiveSet() {
    for (Entry& entry : live_) peer_->free(entry.handle, entry.bytes);
  }
  LiveSet(LiveSet&&) = delete;

  void step() {
    Entry& entry = live_[steps_.victim(step_)];
    peer_->free(entry.handle, entry.bytes);
    fill(entry);
  }

 private:
  struct Entry {
    typename Peer::Handle handle{};
    std::size_t bytes = 0;
  };
  void fill(Entry& entry) {
    entry.bytes = steps_.bytes(step_++);
    entry.handle = peer_->allocate(entry.bytes);
  }

  Peer* peer_;
  LiveSetSteps steps_;
  std::vector<Entry> live_;
  std::size_t step_ = 0;
};

inline void report(const std::string& name, double ns) {
  std::printf("%s %.2f\n", name.c_str(), ns);
  std::fflush(stdout);
}

template <class Peer>
void measure_one_thread(Peer& peer, int rounds, int core) {
  const OnCore on_core(core);
  for (const std::size_t bytes : pair_sizes()) {
    report("alloc/pair/" + std::to_string(bytes), time_calls(rounds, 1000, [&] {
             auto handle = peer.allocate(bytes);
             peer.free(handle, bytes);
           }));
  }
  {
    LiveSet<Peer> set(peer, 1000, live_set_steps());
    for (int i = 0; i < 20'000; ++i) set.step();
    // Long enough that a busy neighbour of the core does not decide.
    report("alloc/live_set", time_calls(5 * rounds, 1000, [&] { set.step(); }));
  }
}

template <class Peer>
void measure_micro(Peer& peer, bool quick, int core) {
  peer.begin(0);
  measure_one_thread(peer, quick ? 9 : 31, core);
  for (const int threads : {1, 8}) {
    const int calls = quick ? 2'000 : 10'000;
    const std::string prefix = "alloc/threads" + std::to_string(threads);
    report(prefix + "/pair_4096", time_threads(threads, calls, [&](int) {
             return [&peer] {
               auto handle = peer.allocate(4096);
               peer.free(handle, 4096);
             };
           }));
    report(prefix + "/live_set_16", time_threads(threads, calls, [&](int thread) {
             auto set = std::make_shared<LiveSet<Peer>>(
                 peer, 16, thread_steps(static_cast<std::uint64_t>(thread)));
             return [set] { set->step(); };
           }));
  }
}

struct PassResult {
  double ns = 0;
  std::size_t done = 0;
  std::uint64_t ooms = 0;
};

// One pass over the sequence, given up after `seconds` or 100 failed allocations.
template <class Peer>
PassResult replay_pass(Peer& peer, const DumpedSequence& sequence, double seconds,
                       std::vector<typename Peer::Handle>& blocks,
                       std::vector<std::uint64_t>& bytes) {
  PassResult pass;
  const auto start = Clock::now();
  const auto deadline =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (const DumpedSequence::Op& op : sequence.ops) {
    if (op.bytes != 0) {
      blocks[op.block] = peer.allocate(op.bytes);
      bytes[op.block] = op.bytes;
      if (Peer::is_empty(blocks[op.block]) && ++pass.ooms == 100) break;
    } else if (!Peer::is_empty(blocks[op.block])) {
      peer.free(blocks[op.block], bytes[op.block]);
      blocks[op.block] = {};
    }
    if (++pass.done % 64 == 0 && Clock::now() > deadline) break;
  }
  pass.ns =
      nanoseconds(Clock::now() - start) / static_cast<double>(std::max<std::size_t>(1, pass.done));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!Peer::is_empty(blocks[i])) peer.free(blocks[i], bytes[i]);
    blocks[i] = {};
  }
  return pass;
}

template <class Peer>
void replay_dump(Peer& peer, const std::string& argument, double seconds) {
  const std::size_t at = argument.rfind('@');
  const DumpedSequence sequence = read_dumped_sequence(argument.substr(0, at));
  peer.begin(std::strtoull(argument.c_str() + at + 1, nullptr, 10));
  std::vector<typename Peer::Handle> blocks(sequence.blocks);
  std::vector<std::uint64_t> bytes(sequence.blocks);
  const PassResult first = replay_pass(peer, sequence, seconds, blocks, bytes);
  PassResult worst = first;
  std::vector<double> warm;
  const auto start = Clock::now();
  // Enough passes for a median, but a slow one only once.
  for (int i = 0; i < 5 && worst.ooms == 0 && nanoseconds(Clock::now() - start) < 0.2e9; ++i) {
    const PassResult pass = replay_pass(peer, sequence, seconds, blocks, bytes);
    warm.push_back(pass.ns);
    worst.ooms += pass.ooms;
    worst.done = std::min(worst.done, pass.done);
  }
  std::printf("replay %s %.2f %.2f %llu %llu %zu %zu\n", argument.c_str(), first.ns, median(warm),
              static_cast<unsigned long long>(peer.peak_reserved()),
              static_cast<unsigned long long>(worst.ooms), worst.done, sequence.ops.size());
  std::fflush(stdout);
}

template <class Peer>
int peer_main(int argc, char** argv, Peer& peer) {
  const std::string command = argc > 1 ? argv[1] : "";
  try {
    if (command == "micro") {
      const bool quick = argc > 2 && std::strcmp(argv[2], "--quick") == 0;
      const int next = quick ? 3 : 2;
      measure_micro(peer, quick, argc > next ? std::atoi(argv[next]) : -1);
      return 0;
    }
    if (command == "replay" && argc > 2) {
      for (int i = 3; i < argc; ++i) replay_dump(peer, argv[i], std::atof(argv[2]));
      return 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: %s micro [--quick] [CORE] | replay SECONDS DUMP@LIMIT…\n", argv[0]);
  return 2;
}

}  // namespace gantry::benchmarks
