// Actors that take turns as a seed says, on memory that shows their stores as it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/collectives/protocol/weak_memory.hpp"
#include "tests/support/fiber.hpp"

namespace gantry::protocol {

using testing::Fiber;

// What is left out, to see that a test finds it.
enum class Weakness { none, releases, barriers, roles, ll, ll128, rereads, claims };

// Note [Exploration]
// One thread runs all actors (warps) as fibers. At every access it decides which actor continues,
// and which pending store becomes visible. A seed determines one schedule. Half of the seeds draw
// from all possible steps. The other seeds give each actor and each store a priority, and lower the
// priority of the running one at random times. An actor or a store may thus be delayed for as long
// as the others can proceed without it. (After probabilistic concurrency testing, Burckhardt et
// al., ASPLOS 2010.)
class Exploration {
 public:
  Exploration(int actors, std::uint64_t seed, Weakness weakness = Weakness::none)
      : weakness(weakness),
        random_(seed),
        memory_(static_cast<std::size_t>(actors), random_),
        fibers_(static_cast<std::size_t>(actors)),
        waits_since_(fibers_.size(), kReady),
        priorities_(fibers_.size()),
        has_priorities_(random_() % 2 == 0),
        store_share_(1 + random_() % 15) {
    for (std::uint64_t& priority : priorities_) priority = random_();
  }

  const Weakness weakness;

  WeakMemory& memory() { return memory_; }
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

  // Lets `actor`, which does nothing, run `body`; calls `ended` on the stack of run().
  void start(int actor, std::function<void()> body) {
    const auto at = static_cast<std::size_t>(actor);
    waits_since_[at] = kReady;
    fibers_[at].start(std::move(body));
  }
  std::function<void(int actor)> ended = [](int) {};

  // Calls `action` after so many choices, if there are as many.
  void schedule(std::uint64_t choices, std::function<void()> action) {
    actions_.emplace(choices, std::move(action));
  }
  // The actor does nothing any more.
  void kill(int actor) { fibers_[static_cast<std::size_t>(actor)].abandon(); }

  // Until all ended and everything is stored; false if those that are left wait for ever.
  bool run() {
    std::uint64_t idle_rounds = 0;
    for (std::uint64_t choices = 0;; ++choices) {
      for (; !actions_.empty() && actions_.begin()->first <= choices;) {
        const auto action = std::exchange(actions_.begin()->second, nullptr);
        actions_.erase(actions_.begin());
        action();
      }
      const Choice choice = choose();
      if (choice.is_none) {
        if (is_over()) return true;
        // Who waits long may look for a reason.
        if (++idle_rounds > kIdleRounds) return false;
        for (std::uint64_t& since : waits_since_) since = kReady;
        continue;
      }
      if (choice.is_store) {
        memory_.advance(choice.id);
        changed();
        idle_rounds = 0;
        continue;
      }
      const std::uint64_t before = changes_;
      const auto at = static_cast<std::size_t>(choice.id);
      running_ = static_cast<int>(at);
      fibers_[at].resume();
      if (!fibers_[at].runs()) {
        changed();
        ended(static_cast<int>(at));
      }
      if (changes_ != before) idle_rounds = 0;
    }
  }

  // By the actor that runs: others may go on first.
  int actor() const { return running_; }
  void point() { fibers_[static_cast<std::size_t>(running_)].stop(); }
  // … and it has nothing to do until something changes.
  void wait() {
    waits_since_[static_cast<std::size_t>(running_)] = changes_;
    point();
  }
  // Something that others may wait for.
  void changed() { ++changes_; }

 private:
  static constexpr std::uint64_t kReady = UINT64_MAX;
  // More than the polls between two checks, see kPollsPerCheck.
  static constexpr std::uint64_t kIdleRounds = 2000;

  struct Choice {
    bool is_none = true;
    bool is_store = false;
    std::uint64_t id = 0;  // of an access, or an actor
  };

  bool is_over() const {
    for (const Fiber& fiber : fibers_) {
      if (fiber.runs()) return false;
    }
    return memory_.is_settled();
  }

  template <class F>
  void for_each_ready_actor(const F& f) const {
    for (std::size_t at = 0; at < fibers_.size(); ++at) {
      const bool is_ready = waits_since_[at] == kReady || waits_since_[at] != changes_;
      if (fibers_[at].runs() && is_ready) f(static_cast<std::uint64_t>(at));
    }
  }

  Choice choose() { return has_priorities_ ? highest() : any(); }

  Choice any() {
    Choice actor;
    Choice store;
    std::uint64_t seen = 0;
    for_each_ready_actor([&](std::uint64_t at) {
      if (random_() % ++seen == 0) actor = {false, false, at};
    });
    if (!actor.is_none && random_() % 16 >= store_share_) return actor;
    seen = 0;
    memory_.for_each_ready([&](std::uint64_t id) {
      if (random_() % ++seen == 0) store = {false, true, id};
    });
    return store.is_none ? actor : store;
  }

  Choice highest() {
    Choice best;
    std::uint64_t most = 0;
    const auto consider = [&](bool is_store, std::uint64_t id, std::uint64_t priority) {
      if (!best.is_none && priority <= most) return;
      best = {false, is_store, id};
      most = priority;
    };
    for_each_ready_actor(
        [&](std::uint64_t at) { consider(false, at, priorities_[static_cast<std::size_t>(at)]); });
    memory_.for_each_ready([&](std::uint64_t id) {
      const auto [found, is_new] = store_priorities_.try_emplace(id, 0);
      if (is_new) found->second = random_();
      consider(true, id, found->second);
    });
    if (!best.is_none && random_() % 64 == 0) {
      std::uint64_t& priority = best.is_store ? store_priorities_[best.id]
                                              : priorities_[static_cast<std::size_t>(best.id)];
      priority = random_() % (most + 1);
    }
    return best;
  }

  std::mt19937_64 random_;
  WeakMemory memory_;
  std::deque<Fiber> fibers_;  // by actor
  std::vector<std::uint64_t> waits_since_;
  std::vector<std::uint64_t> priorities_;
  std::unordered_map<std::uint64_t, std::uint64_t> store_priorities_;
  bool has_priorities_;
  std::uint64_t store_share_;  // of 16: how often a store is next
  std::uint64_t changes_ = 0;
  int running_ = -1;
  std::multimap<std::uint64_t, std::function<void()>> actions_;
};

}  // namespace gantry::protocol
