// A warp of a thread block whose every access is a step of an exploration; see Note [Blocks].
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "collectives/protocol/signal.hpp"
#include "collectives/sim/block.hpp"
#include "tests/collectives/protocol/exploration.hpp"

namespace gantry::protocol {

// What the warps of one block share.
struct ExploredWarps {
  int warps = 1;
  bool has_signalling_warp = false;  // the last one does nothing else

  // Barrier.
  int arrived = 0;
  std::uint64_t passed = 0;
  bool any = false;
  bool result = false;
  Past before;
  Past met;
  std::uint64_t of_leader = 0;

  // What each warp, and each role, knew when it ended a chunk.
  std::vector<std::vector<Past>> worked = std::vector<std::vector<Past>>(16);
  std::vector<std::vector<Past>> role_ended = std::vector<std::vector<Past>>(3);
  bool gave_up[3] = {};
  bool stopped = false;
  bool reported = false;
};

// The Block functions that warps of blocks and of roles have in common.
class ExploredWords {
 public:
  // The polls of a rank that is told to end, for what peers have begun.
  static constexpr std::uint32_t kSettlingPolls = 300;

  ExploredWords(Exploration& exploration, int index, int count)
      : exploration_(&exploration), index_(index), count_(count) {}

  int index() const { return index_; }
  int count() const { return count_; }

  std::uint64_t acquire(const std::uint64_t* word) {
    exploration_->point();
    return *word;
  }
  void release(std::uint64_t* word, std::uint64_t value) {
    const bool orders = exploration_->weakness != Weakness::releases;
    put(word, &value, sizeof value, orders);
  }
  void post(std::uint64_t* word, std::uint64_t value) { put(word, &value, sizeof value, false); }
  void post(std::byte** word, std::byte* address) { put(word, &address, sizeof address, false); }

  LlPacket read_ll(const LlPacket* packet) {
    exploration_->point();
    return *packet;
  }
  void write_ll(LlPacket* packet, const LlPacket& value) {
    const std::size_t grain = exploration_->weakness == Weakness::ll ? 4 : sizeof value;
    put_in(grain, packet, &value, sizeof value);
  }

  // A warp is one thread, which holds a whole LL128 line.
  static constexpr int kLl128WordsHeld = kLl128Words;
  int first_ll128_word() const { return 0; }
  bool any_of_ll128_line(bool flag) { return flag; }
  bool any_of_warp(bool flag) { return flag; }
  std::uint64_t read_ll128_flag(const Ll128Line* line) {
    if (exploration_->weakness == Weakness::rereads) {
      Ll128Line& seen = seen_with_flags_[line];
      load_ll128(line, seen.words);
      return seen.words[kLl128Words - 1];
    }
    exploration_->point();
    return line->words[kLl128Words - 1];
  }
  void read_ll128(const Ll128Line* line, std::uint64_t (&words)[kLl128Words]) {
    if (exploration_->weakness == Weakness::rereads) {
      std::memcpy(words, seen_with_flags_.at(line).words, sizeof words);
    } else {
      load_ll128(line, words);
    }
  }
  // Its parts arrive in address order.
  void write_ll128(Ll128Line* line, const std::uint64_t (&words)[kLl128Words]) {
    if (exploration_->weakness == Weakness::ll128) {
      return put_in(kLl128Part, line->words, words, sizeof words);
    }
    exploration_->point();
    exploration_->memory().store(exploration_->actor(), reinterpret_cast<std::byte*>(line->words),
                                 words, sizeof words, false, kLl128Part);
  }

  template <class Word>
  Word own(const Word* word) {
    return *word;
  }
  template <class Word>
  void set_own(Word* word, Word value) {
    *word = value;
  }
  std::uint32_t count_own(std::uint32_t* word) {
    exploration_->point();
    return (*word)++;
  }
  void note_reported() { reported_ = true; }
  bool has_reported() const { return reported_; }
  void fence() {}
  template <class Word>
  void publish(Word* host_word, Word value) {
    put(host_word, &value, sizeof value, false);
  }
  template <class Word>
  void publish_last(Word* host_word, Word value) {
    put(host_word, &value, sizeof value, exploration_->weakness != Weakness::releases);
  }
  bool claim(std::uint32_t* host_word) {
    exploration_->point();
    if (*host_word != 0) return false;
    // Without claims a thread sees that the words are free, and no more.
    if (exploration_->weakness != Weakness::claims) *host_word = kFaultClaimed;
    exploration_->changed();
    return true;
  }
  bool is_aborted(const DeviceWords* words) { return words->abort != 0; }
  bool takes_turn(std::uint32_t checks) const {
    return (static_cast<int>(checks) + index_) % count_ == 0;
  }
  void pause(std::uint32_t) { exploration_->wait(); }
  template <class Acc>
  static Acc scaled(Acc value, double scale) {
    return SimBlock::scaled(value, scale);
  }

 protected:
  Exploration& exploration() const { return *exploration_; }

  // Every `workers`-th piece of all runs, from `first` on; returns how many pieces there are.
  template <class RunOf>
  int copy_share(int first, int workers, int runs, std::int64_t most, const RunOf& run_of) {
    const std::int64_t piece = piece_of(most);
    const int pieces = static_cast<int>((most + piece - 1) / piece) * runs;
    for (int k = first; k < pieces; k += workers) {
      const std::int64_t at = k / runs * piece;
      const Run run = run_of(k % runs);
      const auto bytes = static_cast<std::size_t>(clipped(run.bytes, at, piece));
      if (bytes == 0) continue;
      const std::byte* const from = run.from + at;
      exploration_->point();
      exploration_->memory().store(
          exploration_->actor(), {{from, bytes}}, {run.to + at}, bytes,
          [from, bytes](std::byte* result) { std::memcpy(result, from, bytes); });
    }
    return pieces;
  }
  template <class T, class From>
  int reduce_slice(int first, int workers, const ReduceBy& how, const Targets& to,
                   std::int64_t bytes, const From& from) {
    const std::int64_t piece = piece_of(bytes);
    const int pieces = static_cast<int>((bytes + piece - 1) / piece);
    for (int k = first; k < pieces; k += workers) {
      const std::int64_t at = k * piece;
      const std::int64_t size = clipped(bytes, at, piece);
      std::vector<WeakMemory::Bytes> loads;
      for (int i = 0; i < from.count; ++i) {
        loads.push_back({from.at(i) + at, static_cast<std::size_t>(size)});
      }
      std::vector<std::byte*> places;
      for (std::uint32_t left = to.ranks; left != 0; left &= left - 1) {
        places.push_back(to.bases[std::countr_zero(left)] + to.offset + at);
      }
      exploration_->point();
      exploration_->memory().store(
          exploration_->actor(), std::move(loads), std::move(places),
          static_cast<std::size_t>(size), [how, from, at, size](std::byte* result) {
            SimBlock(0, 1).reduce<T>(how, Targets{&result, 0, 1}, size, Later<From>{from, at});
          });
    }
    return pieces;
  }

 private:
  static constexpr std::size_t kLl128Part = 16;  // bytes of a line that one GPU thread holds
  static constexpr int kPartWords = static_cast<int>(kLl128Part / sizeof(std::uint64_t));
  static constexpr int kLl128Parts = kLl128Words / kPartWords;

  template <class From>
  struct Later {
    From from;
    std::int64_t by;
    int count = from.count;
    const std::byte* at(int i) const { return from.at(i) + by; }
  };

  // A few pieces, so that warps share them.
  static std::int64_t piece_of(std::int64_t bytes) {
    return std::max<std::int64_t>(16, (bytes / 3 + 15) / 16 * 16);
  }

  // Its parts are loaded one after the other, in any order: no device promises more.
  void load_ll128(const Ll128Line* line, std::uint64_t (&words)[kLl128Words]) {
    std::array<int, kLl128Parts> order;
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t left = kLl128Parts; left > 0; --left) {
      std::swap(order[exploration_->draw(left)], order[left - 1]);
      const int first = order[left - 1] * kPartWords;
      exploration_->point();
      std::memcpy(words + first, line->words + first, kLl128Part);
    }
  }

  void put(void* to, const void* value, std::size_t size, bool orders) {
    exploration_->point();
    exploration_->memory().store(exploration_->actor(), static_cast<std::byte*>(to), value, size,
                                 orders);
  }
  void put_in(std::size_t grain, void* to, const void* value, std::size_t size) {
    for (std::size_t at = 0; at < size; at += grain) {
      put(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(value) + at, grain,
          false);
    }
  }

  Exploration* exploration_;
  int index_;
  int count_;
  bool reported_ = false;
  std::map<const Ll128Line*, Ll128Line> seen_with_flags_;
};

// A working warp of a role, or its signalling warp.
class ExploredRole : public ExploredWords {
 public:
  ExploredRole(const ExploredWords& block, ExploredWarps& warps, int warp, int workers)
      : ExploredWords(block), warps_(&warps), warp_(warp), workers_(workers) {}

  bool is_leader() const { return true; }
  template <class F>
  void for_each_rank(int n, F f) {
    for (int p = 0; p < n; ++p) f(p);
  }
  void sync() {}
  bool any(bool flag) { return flag; }
  bool is_stopped() const { return warps_->stopped; }

  bool wait_role(int role, std::int64_t chunks) {
    if (chunks <= 0) return true;
    const std::vector<Past>& ended = warps_->role_ended[static_cast<std::size_t>(role)];
    while (static_cast<std::int64_t>(ended.size()) < chunks) {
      if (is_stopped()) return false;
      exploration().wait();
    }
    learn(ended[static_cast<std::size_t>(chunks - 1)]);
    return true;
  }
  void learn(const Past& past) {
    if (exploration().weakness == Weakness::roles) return;
    exploration().memory().learn(exploration().actor(), past);
  }

  template <class RunOf>
  void copy(int runs, std::int64_t most, const RunOf& run_of) {
    pass_turn(copy_share((warp_ + turn_) % workers_, workers_, runs, most, run_of));
  }
  template <class T, class From>
  void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes, const From& from) {
    pass_turn(reduce_slice<T>((warp_ + turn_) % workers_, workers_, how, to, bytes, from));
  }

 private:
  void pass_turn(int pieces) { turn_ = (turn_ + workers_ - pieces % workers_) % workers_; }

  ExploredWarps* warps_;
  int warp_;
  int workers_;
  int turn_ = 0;
};

// Warp `warp` of a block. Follows CudaBlock, with a thread for each warp.
class ExploredBlock : public ExploredWords {
 public:
  // Warps of a role; the last one is its signalling warp.
  static constexpr int kRoleWarps = 3;

  ExploredBlock(Exploration& exploration, ExploredWarps& warps, int index, int count, int warp)
      : ExploredWords(exploration, index, count), warps_(&warps), warp_(warp) {}

  bool is_leader() const { return warp_ == 0; }
  bool is_stopped() const { return false; }

  template <class F>
  void for_each(std::int64_t n, F f) {
    for (std::int64_t i = warp_; i < n; i += warps_->warps) f(i);
  }
  template <class F>
  void for_each_ll128_line(std::int32_t n, F f) {
    for_each(n, f);
  }
  template <class F>
  void for_each_rank(int n, F f) {
    if (warp_ != warps_->warps - 1) return;
    for (int p = 0; p < n; ++p) f(p);
  }
  template <class F>
  bool each_finds(int n, F f) {
    if (is_signalling()) return true;
    bool all = true;
    for (int i = 0; i < n; ++i) all = f(i) && all;
    return all;
  }

  std::uint64_t from_leader(std::uint64_t value) {
    if (is_leader()) warps_->of_leader = value;
    sync();
    return warps_->of_leader;
  }
  void sync() { (void)any(false); }
  bool any(bool flag) {
    const int actor = exploration().actor();
    exploration().point();
    ExploredWarps& all = *warps_;
    join(all.before, exploration().memory().past(actor));
    all.any = all.any || flag;
    const std::uint64_t passed = all.passed;
    if (++all.arrived == all.warps) {
      all.arrived = 0;
      all.result = std::exchange(all.any, false);
      all.met = std::exchange(all.before, {});
      ++all.passed;
      exploration().changed();
    }
    while (all.passed == passed) exploration().wait();
    if (exploration().weakness != Weakness::barriers) exploration().memory().learn(actor, all.met);
    return all.result;
  }

  template <class RunOf>
  void copy(int runs, std::int64_t most, const RunOf& run_of) {
    if (!is_signalling()) copy_share(warp_, workers(), runs, most, run_of);
  }
  template <class T, class From>
  void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes, const From& from) {
    if (!is_signalling()) reduce_slice<T>(warp_, workers(), how, to, bytes, from);
  }

  template <int... Warps, class... Stages>
  bool pipeline(std::int64_t chunks, const Stages&... stages) {
    sync();
    int role = 0;
    ((role++ == warp_ / kRoleWarps ? run_role(stages, role - 1, chunks) : void()), ...);
    sync();
    if (warps_->reported) note_reported();
    return !warps_->stopped;
  }

 private:
  bool is_signalling() const { return warps_->has_signalling_warp && warp_ == warps_->warps - 1; }
  int workers() const { return warps_->warps - (warps_->has_signalling_warp ? 1 : 0); }

  template <class Stage>
  void run_role(const Stage& stage, int index, std::int64_t chunks) {
    constexpr int kWorkers = kRoleWarps - 1;
    ExploredWarps& all = *warps_;
    const int first = index * kRoleWarps;
    const int warp = warp_ - first;
    ExploredRole role(*this, all, warp, kWorkers);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (warp < kWorkers) {
        const bool goes_on = stage.work(role, chunk);
        all.reported = all.reported || role.has_reported();
        if (!goes_on) {
          all.gave_up[index] = all.stopped = true;
          exploration().changed();
          return;
        }
        all.worked[static_cast<std::size_t>(warp_)].push_back(known());
      } else {
        for (int worker = first; worker < first + kWorkers; ++worker) {
          const std::vector<Past>& worked = all.worked[static_cast<std::size_t>(worker)];
          while (static_cast<std::int64_t>(worked.size()) <= chunk) {
            if (all.gave_up[index]) return;
            exploration().wait();
          }
          role.learn(worked[static_cast<std::size_t>(chunk)]);
        }
        all.role_ended[static_cast<std::size_t>(index)].push_back(known());
      }
      exploration().changed();
      if (warp == kWorkers) stage.signal(role, chunk);
    }
  }
  const Past& known() const { return exploration().memory().past(exploration().actor()); }

  ExploredWarps* warps_;
  int warp_;
};

}  // namespace gantry::protocol
