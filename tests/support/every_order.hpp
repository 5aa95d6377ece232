// Actors in every order of their accesses to memory that they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fiber.hpp"

namespace gantry::testing {

/// Note [Every order]
/// Each access to a word is one step of its actor. A run follows a list of choices, which actor is
/// next, and notes other choices at each step behind it. An actor is deterministic, so the values
/// that it read are its state. A run ends at a state that an earlier run has seen. (Stateful search
/// with replays, after Godefroid, LNCS 1032, 1996.) All accesses are sequentially consistent; a
/// weaker one fails.
///
/// Thread safety: one thread.
class EveryOrder {
 public:
  using Actors = std::vector<std::function<void()>>;

  /// Runs the actors of `begin()`, which makes their words anew, in every order. Empty, or the text
  /// of the first fail() and the order.
  std::string explore(const std::function<Actors()>& begin) {
    std::vector<std::vector<int>> orders{{}};
    while (!orders.empty()) {
      std::vector<int> order = std::move(orders.back());
      orders.pop_back();
      run(begin(), std::move(order), orders);
      if (!failure_.empty()) return failure_ + "; order of actors" + text(taken_);
    }
    return {};
  }
  /// Returns the number of different states that the runs have seen.
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

  // By the actor that runs:
  /// Others may go on first.
  void point() { fibers_[running_].stop(); }
  /// Goes on when `is_ready()`. An order in which an actor waits for ever is a failure.
  void wait(std::function<bool()> is_ready) {
    waits_[running_] = std::move(is_ready);
    point();
    waits_[running_] = nullptr;
  }
  /// The value is part of its state.
  void note(std::uint64_t value) { pasts_[running_].push_back(value); }
  void fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }
  /// The actor does nothing any more.
  void end(std::size_t actor) { fibers_[actor].abandon(); }
  [[nodiscard]] bool has_ended(std::size_t actor) const { return !fibers_[actor].runs(); }

 private:
  void run(Actors bodies, std::vector<int> order, std::vector<std::vector<int>>& orders) {
    const std::size_t actors = bodies.size();
    while (fibers_.size() < actors) fibers_.emplace_back();
    pasts_.assign(actors, {});
    waits_.assign(actors, nullptr);
    taken_.clear();
    for (std::size_t i = 0; i < actors; ++i) fibers_[i].start(std::move(bodies[i]));
    while (failure_.empty()) {
      std::vector<int> ready;
      bool is_over = true;
      for (std::size_t i = 0; i < actors; ++i) {
        if (!fibers_[i].runs()) continue;
        is_over = false;
        if (waits_[i] == nullptr || waits_[i]()) ready.push_back(static_cast<int>(i));
      }
      if (is_over) return;
      if (ready.empty()) return fail("an actor waits for ever");
      int next = ready.front();
      if (taken_.size() < order.size()) {
        next = order[taken_.size()];
      } else {
        if (!seen_.insert(pasts_).second) return;
        for (std::size_t i = 1; i < ready.size(); ++i) {
          orders.push_back(taken_);
          orders.back().push_back(ready[i]);
        }
      }
      taken_.push_back(next);
      running_ = static_cast<std::size_t>(next);
      note(kStep);
      fibers_[running_].resume();
    }
  }

  static std::string text(const std::vector<int>& order) {
    std::string result;
    for (const int actor : order) result += ' ' + std::to_string(actor);
    return result;
  }

  static constexpr std::uint64_t kStep = UINT64_MAX;

  std::deque<Fiber> fibers_;
  std::size_t running_ = 0;
  std::vector<std::vector<std::uint64_t>> pasts_;  // by actor
  std::vector<std::function<bool()>> waits_;       // by actor
  std::vector<int> taken_;                         // actors of this run so far
  std::set<std::vector<std::vector<std::uint64_t>>> seen_;
  std::string failure_;
};

/// A word of such a run, used as std::atomic.
template <class T>
class OrderedWord {
 public:
  explicit OrderedWord(EveryOrder& order, T first = {}) : order_(&order), value_(first) {}

  T load(std::memory_order memory = std::memory_order_seq_cst) const {
    access(memory);
    order_->note(value_);
    return value_;
  }
  void store(T value, std::memory_order memory = std::memory_order_seq_cst) {
    access(memory);
    value_ = value;
  }
  T fetch_add(T added, std::memory_order memory = std::memory_order_seq_cst) {
    access(memory);
    order_->note(value_);
    return std::exchange(value_, static_cast<T>(value_ + added));
  }
  T fetch_sub(T removed, std::memory_order memory = std::memory_order_seq_cst) {
    access(memory);
    order_->note(value_);
    return std::exchange(value_, static_cast<T>(value_ - removed));
  }
  /// Its value, for checks: no access.
  [[nodiscard]] T value() const { return value_; }

 private:
  void access(std::memory_order memory) const {
    if (memory != std::memory_order_seq_cst) order_->fail("an access has a weaker memory order");
    order_->point();
  }

  EveryOrder* order_;
  T value_;
};

}  // namespace gantry::testing
