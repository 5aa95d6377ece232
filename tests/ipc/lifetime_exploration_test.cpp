// The lifetimes of shared blocks in every order of the accesses of exporter and importers.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ipc/lifetime.hpp"
#include "tests/support/every_order.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::EveryOrder;
using gantry::testing::OrderedWord;

constexpr std::size_t kProcesses = 2;

// One importing thread: its process, and how often it acquires the block.
struct Importer {
  std::size_t process = 0;
  int times = 1;
};

struct Program {
  std::vector<Importer> importers;
  bool loses_first_process = false;  // at any time, with all its threads
};

// One run: an exporter frees a block and exports the next one in its slot, while importers acquire
// and release the block. Actor 0 is the exporter; importers follow, and last the end of a process.
class Model {
 public:
  Model(EveryOrder& order, const Program& program) : order_(order), program_(program) {}

  EveryOrder::Actors actors() {
    EveryOrder::Actors actors;
    actors.emplace_back([this] { export_next(); });
    for (const Importer& importer : program_.importers) {
      actors.emplace_back([this, importer] { import(importer); });
    }
    if (program_.loses_first_process) {
      actors.emplace_back([this] { lose_first_process(); });
    }
    return actors;
  }

 private:
  static constexpr std::uint64_t kFirst = 1;  // generation

  // As IpcExporter: free, then one sweep of the slot for each request, and one at the end.
  void export_next() {
    bool is_freed = close();
    while (!is_freed) {
      order_.wait([this] { return requests_ > 0 || have_importers_ended(); });
      const bool is_last = requests_ == 0;
      order_.note(is_last ? 1 : 0);
      if (!is_last) --requests_;
      if (is_last && !program_.loses_first_process) {
        return order_.fail("no request came for the last reference");
      }
      is_freed = close();
      if (is_last && !is_freed) return order_.fail("a block without references stays in limbo");
    }
    open_slot(slot_, kFirst + 1);
    const SlotState next = SlotState::of(slot_.value());
    if (!next.is_open || next.in_limbo) order_.fail("a new block begins in limbo");
  }

  bool close() {
    // Dead importers are removed first.
    std::array<bool, kProcesses> counts{true, true};
    order_.point();
    counts[0] = !is_first_lost_;
    order_.note(counts[0] ? 1 : 0);
    is_freed_ = close_slot(slot_, kFirst, [&] {
      for (std::size_t process = 0; process < kProcesses; ++process) {
        if (counts[process] && counts_[process].load() > 0) return true;
      }
      return false;
    });
    if (is_freed_ && holders() > 0) order_.fail("a block is freed under its importer");
    if (!is_freed_ && !SlotState::of(slot_.value()).is_open) {
      order_.fail("a block in limbo is closed");
    }
    return is_freed_;
  }

  void import(const Importer& importer) {
    OrderedWord<std::uint32_t>& count = counts_[importer.process];
    const auto request = [this] { ++requests_; };
    for (int i = 0; i < importer.times; ++i) {
      if (!acquire_reference(slot_, count, kFirst, request)) continue;
      if (is_freed_) order_.fail("an importer got a block that is freed");
      ++holders_[importer.process];
      order_.point();
      --holders_[importer.process];
      release_reference(slot_, count, request);
    }
  }

  void lose_first_process() {
    order_.point();
    for (std::size_t i = 0; i < program_.importers.size(); ++i) {
      if (program_.importers[i].process == 0) order_.end(1 + i);
    }
    holders_[0] = 0;
    is_first_lost_ = true;
  }

  [[nodiscard]] bool have_importers_ended() const {
    for (std::size_t i = 0; i < program_.importers.size(); ++i) {
      if (!order_.has_ended(1 + i)) return false;
    }
    return !program_.loses_first_process || is_first_lost_;
  }
  [[nodiscard]] int holders() const { return holders_[0] + holders_[1]; }

  EveryOrder& order_;
  const Program& program_;
  OrderedWord<std::uint64_t> slot_{order_, SlotState{kFirst, true, false}.word()};
  std::array<OrderedWord<std::uint32_t>, kProcesses> counts_{OrderedWord<std::uint32_t>(order_),
                                                             OrderedWord<std::uint32_t>(order_)};
  std::array<int, kProcesses> holders_{};
  int requests_ = 0;
  bool is_freed_ = false;
  bool is_first_lost_ = false;
};

// Explores the program; adds up the states in `states`.
std::string explore(const Program& program, std::size_t& states) {
  EveryOrder order;
  std::unique_ptr<Model> model;
  const std::string failure = order.explore([&] {
    model = std::make_unique<Model>(order, program);
    return model->actors();
  });
  states += order.states();
  return failure;
}

TEST(LifetimeExplorationTest, ABlockIsFreedOnceAndAfterItsImporters) {
  const Program programs[] = {
      {{{.process = 0}}},
      {{{.process = 0, .times = 3}}},
      {{{.process = 0}, {.process = 1}}},
      {{{.process = 0}, {.process = 0}}},  // threads of one process share its count
      {{{.process = 0, .times = 2}, {.process = 1}}},
  };
  std::size_t states = 0;
  for (const Program& program : programs) EXPECT_EQ(explore(program, states), "");
  RecordProperty("states", std::to_string(states));
  EXPECT_GT(states, 10'000U);
}

TEST(LifetimeExplorationTest, AProcessThatDiesHoldsNothing) {
  const Program programs[] = {
      {{{.process = 0}}, true},
      {{{.process = 0, .times = 2}}, true},
      {{{.process = 0}, {.process = 1}}, true},
      {{{.process = 0}, {.process = 0}}, true},
  };
  std::size_t states = 0;
  for (const Program& program : programs) EXPECT_EQ(explore(program, states), "");
  EXPECT_GT(states, 1'000U);
}

}  // namespace
}  // namespace gantry::memory
