// A thread block of a simulated device: one host thread; see Note [Blocks].
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "collectives/protocol/plan.hpp"
#include "collectives/protocol/signal.hpp"
#include "collectives/sim/accesses.hpp"
#include "collectives/sim/schedule.hpp"
#include "kernels/impl/nary.inl"
#include "kernels/peers/nary_plan.hpp"

namespace gantry::protocol {

class SimBlock {
 public:
  static constexpr std::uint32_t kSettlingPolls = 1 << 11;

  // `rank`: whose kernel this is, for an accesses::Watcher.
  SimBlock(int index, int count, int rank = -1)
      : index_(index), count_(count), rank_(rank), watcher_(accesses::watcher()) {}

  // Tells the watcher that the block has ended.
  void finish() const {
    if (watcher_ != nullptr) watcher_->on_end(rank_, index_, std::max(steps_, unit_steps_));
  }

  int index() const { return index_; }
  int count() const { return count_; }
  bool is_leader() const { return true; }

  template <class F>
  void for_each(std::int64_t n, F f) {
    for (std::int64_t i = 0; i < n; ++i) f(i);
  }
  template <class F>
  void for_each_rank(int n, F f) {
    for (int p = 0; p < n; ++p) f(p);
  }
  template <class F>
  bool each_finds(int n, F f) {
    bool all = true;
    for (int i = 0; i < n; ++i) all = f(i) && all;
    return all;
  }
  void sync() {}
  bool any(bool flag) { return flag; }

  std::uint64_t acquire(const std::uint64_t* word) {
    schedule::point();
    if (!is_waiting_ && !is_in_pipeline_) ++steps_;
    is_waiting_ = true;
    return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
  }
  void release(std::uint64_t* word, std::uint64_t value) {
    schedule::point();
    is_waiting_ = false;
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }

  void post(std::uint64_t* word, std::uint64_t value) { release(word, value); }
  void post(std::byte** word, std::byte* address) {
    schedule::point();
    std::atomic_ref(*word).store(address, std::memory_order_relaxed);
  }

  // The low half is written last and read first, so that both halves are of one packet.
  LlPacket read_ll(const LlPacket* packet) {
    has_read_units_ = true;
    auto* words = reinterpret_cast<std::uint64_t*>(const_cast<LlPacket*>(packet));
    const std::uint64_t low = std::atomic_ref(words[0]).load(std::memory_order_acquire);
    const std::uint64_t high = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
    return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
            static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
  }
  void write_ll(LlPacket* packet, const LlPacket& value) {
    schedule::point();
    note_unit(packet, sizeof value);
    auto* words = reinterpret_cast<std::uint64_t*>(packet);
    std::atomic_ref(words[1]).store(std::uint64_t{value.high_flag} << 32 | value.high,
                                    std::memory_order_relaxed);
    std::atomic_ref(words[0]).store(std::uint64_t{value.low_flag} << 32 | value.low,
                                    std::memory_order_release);
  }

  // One thread holds a whole LL128 line. Its flag is written last and read first.
  static constexpr int kLl128WordsHeld = kLl128Words;
  int first_ll128_word() const { return 0; }
  template <class F>
  void for_each_ll128_line(std::int32_t n, F f) {
    for_each(n, f);
  }
  bool any_of_ll128_line(bool flag) { return flag; }
  bool any_of_warp(bool flag) { return flag; }
  std::uint64_t read_ll128_flag(const Ll128Line* line) {
    has_read_units_ = true;
    auto& flag = const_cast<Ll128Line*>(line)->words[kLl128Words - 1];
    return std::atomic_ref(flag).load(std::memory_order_acquire);
  }
  void read_ll128(const Ll128Line* line, std::uint64_t (&words)[kLl128Words]) {
    auto& seen = const_cast<Ll128Line*>(line)->words;
    for (int i = 0; i < kLl128Words; ++i) {
      words[i] = std::atomic_ref(seen[i]).load(std::memory_order_relaxed);
    }
  }
  void write_ll128(Ll128Line* line, const std::uint64_t (&words)[kLl128Words]) {
    schedule::point();
    note_unit(line, sizeof words);
    for (int i = 0; i < kLl128Words - 1; ++i) {
      std::atomic_ref(line->words[i]).store(words[i], std::memory_order_relaxed);
    }
    std::atomic_ref(line->words[kLl128Words - 1])
        .store(words[kLl128Words - 1], std::memory_order_release);
  }

  // Atomic, because blocks of operations that overlap may access these words at one time.
  template <class Word>
  Word own(const Word* word) {
    return std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_relaxed);
  }
  template <class Word>
  void set_own(Word* word, Word value) {
    std::atomic_ref(*word).store(value, std::memory_order_relaxed);
  }
  std::uint32_t count_own(std::uint32_t* word) {
    return std::atomic_ref(*word).fetch_add(1, std::memory_order_acquire);
  }
  std::uint64_t from_leader(std::uint64_t value) { return value; }
  void note_reported() { reported_ = true; }
  bool has_reported() const { return reported_; }
  void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

  template <class Word>
  void publish(Word* host_word, Word value) {
    std::atomic_ref(*host_word).store(value, std::memory_order_release);
  }
  template <class Word>
  void publish_last(Word* host_word, Word value) {
    publish(host_word, value);
  }
  bool claim(std::uint32_t* host_word) {
    std::uint32_t free = 0;
    return std::atomic_ref(*host_word)
        .compare_exchange_strong(free, kFaultClaimed, std::memory_order_acquire);
  }
  bool is_aborted(const DeviceWords* words) {
    return std::atomic_ref(const_cast<DeviceWords*>(words)->abort)
               .load(std::memory_order_acquire) != 0;
  }
  bool takes_turn(std::uint32_t) { return true; }
  void pause(std::uint32_t spins) { schedule::pause(spins); }

  template <class RunOf>
  void copy(int runs, std::int64_t, const RunOf& run_of) {
    for (int k = 0; k < runs; ++k) {
      const Run run = run_of(k);
      if (run.bytes <= 0) continue;
      std::memcpy(run.to, run.from, static_cast<std::size_t>(run.bytes));
      note(run.to, run.from, run.bytes);
    }
  }

  // One thread runs all roles, see Note [Warp roles].
  template <int... Warps, class... Stages>
  bool pipeline(std::int64_t chunks, const Stages&... stages) {
    constexpr int kRoles = sizeof...(Stages);
    ended_ = {};
    bool goes_on = true;
    is_in_pipeline_ = true;
    for (std::int64_t turn = 0; goes_on && turn < chunks + kRoles - 1; ++turn) {
      for (int role = kRoles - 1; goes_on && role >= 0; --role) {
        const std::int64_t chunk = turn - role;
        if (chunk < 0 || chunk >= chunks) continue;
        int index = 0;
        ((index++ == role ? goes_on = run_stage(stages, role, chunk) : goes_on), ...);
      }
    }
    is_in_pipeline_ = is_waiting_ = false;
    steps_ += chunks + kRoles - 2;  // the first role sends, and waits for nobody
    return goes_on;
  }
  template <class Stage>
  bool run_stage(const Stage& stage, int role, std::int64_t chunk) {
    if (!stage.work(*this, chunk)) return false;
    ended_[static_cast<std::size_t>(role)] = chunk + 1;
    stage.signal(*this, chunk);
    return true;
  }
  bool wait_role(int role, std::int64_t chunks) const {
    return ended_[static_cast<std::size_t>(role)] >= chunks;
  }
  bool is_stopped() const { return false; }

  template <class T, class From>
  void reduce(const ReduceBy& how, const Targets& to, std::int64_t bytes, const From& from) {
    using Element = typename kernels::NaryFunctor<T, kernels::NaryOp::sum>::Stored;
    const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(Element));
    kernels::with_nary_functor<T>(how.op, [&](auto functor) {
      using F = typename decltype(functor)::type;
      if constexpr (F::kIsDefined) {
        std::vector<typename F::Acc> acc(static_cast<std::size_t>(count));
        for (int rank = 0; rank < from.count; ++rank) {
          const auto* in = reinterpret_cast<const Element*>(from.at(rank));
          if (count > 0) note(nullptr, from.at(rank), bytes);
          for (std::size_t i = 0; i < acc.size(); ++i) {
            const auto value = scaled(F::load(in[i]), how.scale);
            acc[i] = rank == 0 ? value : F::combine(acc[i], value);
          }
        }
        for (std::uint32_t left = to.ranks; left != 0; left &= left - 1) {
          auto* out = reinterpret_cast<Element*>(to.bases[std::countr_zero(left)] + to.offset);
          for (std::size_t i = 0; i < acc.size(); ++i) out[i] = F::finish(acc[i], how.divisor);
          if (count > 0) note(reinterpret_cast<std::byte*>(out), nullptr, bytes);
        }
      }
    });
  }

  // Rounded by itself.
  template <class Acc>
  static Acc scaled(Acc value, double scale) {
    if constexpr (std::is_floating_point_v<Acc>) {
      // volatile: the compiler must not fuse the product into the sum.
      if (scale == 1) return value;
      volatile Acc product = value * static_cast<Acc>(scale);
      return product;
    } else {
      return value;
    }
  }

 private:
  void note(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    if (watcher_ == nullptr) return;
    watcher_->on_access({.rank = rank_, .block = index_, .to = to, .from = from, .bytes = bytes});
  }
  void note_unit(void* to, std::size_t bytes) {
    unit_steps_ = std::max<std::int64_t>(unit_steps_, has_read_units_ ? 2 : 1);
    if (watcher_ == nullptr) return;
    watcher_->on_access({.rank = rank_,
                         .block = index_,
                         .to = static_cast<std::byte*>(to),
                         .bytes = static_cast<std::int64_t>(bytes),
                         .is_unit = true,
                         .is_reply = has_read_units_});
  }

  int index_;
  int count_;
  int rank_;
  accesses::Watcher* watcher_;
  bool reported_ = false;
  // Rounds of signals, and of units. A round begins with a look at a word behind a signal.
  std::int64_t steps_ = 0;
  std::int64_t unit_steps_ = 0;
  bool is_waiting_ = false;
  bool is_in_pipeline_ = false;
  bool has_read_units_ = false;
  std::array<std::int64_t, 3> ended_ = {};  // chunks that each role has ended
};

}  // namespace gantry::protocol
