// Random programs through Graph: no capture or replay changes memory outside of it, replays give
// what the eager program would, and whatever fails leaves nothing behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "tests/streams/graph_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

/// Every tensor holds one value in all its elements. The model keeps the values.
class GraphProgram {
 public:
  GraphProgram(Device device, unsigned seed) : options_{.device = device}, random_(seed) {
    options_.dtype = DType::f32;
  }

  void step() {
    switch (pick(10)) {
      case 0:
        return make_outside();
      case 8:
        return make_outside_on_capture_stream();
      case 9:
        if (!groups_.empty()) drop_output(*any(groups_));
        return;
      case 1:
        if (!outside_.empty() && pick(2) == 0) remove(any(outside_));
        return;
      case 2:
        return capture(pick(3) == 0 && !groups_.empty() ? any(groups_) : new_group());
      case 3:
        if (!groups_.empty() && pick(3) == 0) destroy();
        return;
      default:
        if (!groups_.empty()) replay(*any(groups_));
        return check();
    }
  }
  /// Compares all tensors that have a value with the model.
  void check() const {
    for (const CellPtr& cell : outside_) check(*cell);
    for (const GroupPtr& group : groups_) {
      for (const auto& graph : group->graphs) {
        for (const CellPtr& cell : graph->outputs) check(*cell);
      }
    }
  }
  void clear() {
    groups_.clear();
    outside_.clear();
  }
  [[nodiscard]] int replays() const { return replays_; }

 private:
  struct Cell {
    Tensor tensor;
    float value = 0;
    bool has_value = false;  ///< an output has none before the first replay
    int inputs = 0;          ///< graphs that read it
  };
  using CellPtr = std::shared_ptr<Cell>;
  struct Operation {
    CellPtr to, a, b;  // to = a + b; without a and b a number
    float number = 0;
  };
  struct Captured {
    Graph graph;
    std::vector<Operation> operations;
    std::vector<CellPtr> outputs, inputs;
    ~Captured() {
      for (const CellPtr& cell : inputs) --cell->inputs;
    }
  };
  // Graphs that share memory, and are replayed in the order of their captures.
  struct Group {
    MemPoolId pool = graph_pool_handle();
    std::vector<std::unique_ptr<Captured>> graphs;
  };
  using GroupPtr = std::shared_ptr<Group>;

  std::size_t pick(std::size_t n) { return random_() % n; }
  template <class T>
  T& any(std::vector<T>& all) {
    return all[pick(all.size())];
  }
  Shape shape() {
    constexpr std::int64_t kCounts[] = {1, 1000, 5000, 70'000};
    return {kCounts[pick(std::size(kCounts))]};
  }
  float number() { return static_cast<float>(1 + pick(50)); }

  static void check(const Cell& cell) {
    if (!cell.has_value) return;
    const auto values = cell.tensor.to_vector<float>();
    ASSERT_EQ(values, std::vector<float>(values.size(), cell.value));
  }
  void make_outside() {
    const float value = number();
    outside_.push_back(
        std::make_shared<Cell>(Cell{full(shape(), value, options_), value, true, 0}));
  }
  // On the stream whose captures freed blocks: it is the one that could reuse them.
  void make_outside_on_capture_stream() {
    if (!capture_stream_) return;
    const Stream current = Stream::current(*options_.device);
    capture_stream_->wait(current);
    {
      const StreamGuard guard(*capture_stream_);
      make_outside();
    }
    current.wait(*capture_stream_);
    outside_.back()->tensor.record_stream(current);
  }
  // The program lets go of an output while the graph goes on writing it.
  void drop_output(Group& group) {
    Captured& captured = *any(group.graphs);
    if (!captured.outputs.empty()) drop(any(captured.outputs), captured.outputs);
  }
  void remove(const CellPtr& cell) {
    if (cell->inputs == 0) outside_.erase(std::ranges::find(outside_, cell));
  }
  GroupPtr new_group() { return std::make_shared<Group>(); }

  CellPtr input(Captured& captured) {
    if (outside_.empty()) return nullptr;
    CellPtr cell = any(outside_);
    captured.inputs.push_back(cell);
    ++cell->inputs;
    return cell;
  }
  // A tensor that only the graph goes on reading: the program lets go of it in the capture.
  CellPtr take_outside() {
    if (outside_.empty()) return nullptr;
    CellPtr cell = any(outside_);
    if (cell->inputs != 0) return nullptr;
    outside_.erase(std::ranges::find(outside_, cell));
    return cell;
  }
  // One operation, whose result may die at once.
  void compute(Captured& captured, std::vector<CellPtr>& alive) {
    CellPtr a = alive.empty() || pick(3) == 0 ? input(captured) : any(alive);
    const CellPtr last_use = pick(5) == 0 ? take_outside() : nullptr;
    if (last_use != nullptr) a = last_use;
    auto to = std::make_shared<Cell>();
    if (a == nullptr || (last_use == nullptr && pick(4) == 0)) {
      const float value = number();
      to->tensor = full(shape(), value, options_);
      captured.operations.push_back({to, nullptr, nullptr, value});
    } else {
      to->tensor = a->tensor + a->tensor.select(0, 0);
      captured.operations.push_back({to, a, a, 0});
    }
    if (last_use != nullptr) {
      last_use->tensor.record_stream(Stream::current(*options_.device));
      last_use->tensor = Tensor();
    }
    alive.push_back(std::move(to));
    if (pick(3) == 0) drop(any(alive), alive);
  }
  // A temporary: the graph goes on with its memory, and the model with its value.
  static void drop(CellPtr cell, std::vector<CellPtr>& alive) {
    cell->tensor = Tensor();
    std::erase(alive, cell);
  }
  // A scope on another stream, forked from the capture and joined to it.
  void compute_aside(const GraphCapture& capture, Captured& captured, std::vector<CellPtr>& alive) {
    Stream side = Stream::from_pool(*options_.device);
    while (side == capture.stream()) side = Stream::from_pool(*options_.device);
    side.wait(capture.stream());
    std::vector<CellPtr> made;
    {
      const StreamGuard guard(side);
      for (std::size_t i = pick(3) + 1; i > 0; --i) compute(captured, made);
    }
    capture.stream().wait(side);
    for (const CellPtr& cell : made) cell->tensor.record_stream(capture.stream());
    alive.insert(alive.end(), made.begin(), made.end());
  }

  void capture(const GroupPtr& group) {
    struct GaveUp {};
    auto captured = std::make_unique<Captured>();
    std::vector<CellPtr> alive;
    try {
      const GraphCapture scope(captured->graph, {.pool = group->pool});
      capture_stream_ = scope.stream();
      for (std::size_t i = pick(6) + 1; i > 0; --i) {
        pick(4) == 0 ? compute_aside(scope, *captured, alive) : compute(*captured, alive);
      }
      if (pick(6) == 0) throw GaveUp();
    } catch (const GaveUp&) {
      EXPECT_FALSE(captured->graph.is_captured());
      return;
    }
    captured->outputs = std::move(alive);
    group->graphs.push_back(std::move(captured));
    if (std::ranges::find(groups_, group) == groups_.end()) groups_.push_back(group);
  }
  void replay(Group& group) {
    for (const auto& captured : group.graphs) {
      captured->graph.replay();
      for (const Operation& operation : captured->operations) {
        operation.to->value =
            operation.a == nullptr ? operation.number : operation.a->value + operation.b->value;
        operation.to->has_value = operation.to->tensor.defined();
      }
      ++replays_;
    }
  }
  // Outputs may outlive their graph.
  void destroy() {
    const std::size_t i = pick(groups_.size());
    for (const auto& captured : groups_[i]->graphs) {
      for (const CellPtr& cell : captured->outputs) {
        if (cell->has_value && pick(2) == 0) outside_.push_back(cell);
      }
    }
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  TensorOptions options_;
  std::mt19937 random_;
  std::vector<CellPtr> outside_;
  std::vector<GroupPtr> groups_;
  std::optional<Stream> capture_stream_;  ///< of the last capture
  int replays_ = 0;
};

using GraphPrivacyTest = testing::GraphTest;

TEST_F(GraphPrivacyTest, NothingOutsideOfAGraphChanges) {
  release_unused();
  const std::size_t before = memory::allocated(device_);
  int replays = 0;
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    GraphProgram program(device_, seed);
    for (int step = 0; step < 200; ++step) {
      program.step();
      ASSERT_FALSE(HasFailure()) << "step " << step;
    }
    replays += program.replays();
    program.clear();
    release_unused();
    ASSERT_EQ(memory::allocated(device_), before);
  }
  EXPECT_GT(replays, 500);
}

// Another graph does not get the memory of a graph that nothing outside holds any more.
TEST_F(GraphPrivacyTest, AGraphWithoutOutputsKeepsItsMemory) {
  constexpr std::int64_t kLarge = 1'000'000;  // past the caches of threads
  const Tensor outside = equal(7, kLarge);
  const Tensor sum = equal(0, kLarge);
  std::optional<Stream> stream;
  const auto capture = [&](Graph& graph) {
    const GraphCapture scope(graph);
    stream = scope.stream();
    const Tensor temporary = outside + 1;
    sum.copy_(temporary);
    return temporary.data_ptr();
  };
  Graph first;
  const void* const temporary = capture(first);
  {
    // All work on that memory is complete: only the graph itself keeps it.
    stream->wait(Stream::current(device_));
    const StreamGuard guard(*stream);
    first.replay();
    EXPECT_EQ(value_of(sum), 8);
    Stream::current(device_).synchronize();
    memory::empty_cache();
  }
  Graph second;
  Tensor kept;
  {
    const GraphCapture scope(second);
    kept = outside * 2;
  }
  EXPECT_NE(kept.data_ptr(), temporary);
  second.replay();
  first.replay();
  EXPECT_EQ(value_of(kept), 14);
  EXPECT_EQ(value_of(sum), 8);
}

// A program with a call of the driver that fails, in turn every one of them.
TEST_F(GraphPrivacyTest, AnyFailingCallLeavesNothingBehind) {
  GANTRY_REQUIRE_SIM();
  const Tensor outside = equal(7);
  const auto run = [&] {
    const MemPoolId pool = graph_pool_handle();
    Graph first;
    Graph second;
    Tensor a;
    Tensor b;
    {
      const GraphCapture capture(first, {.pool = pool});
      a = outside + 1;
      const Stream side = Stream::from_pool(device_);
      side.wait(capture.stream());
      {
        const StreamGuard guard(side);
        b = (outside * 2) - 4;
      }
      capture.stream().wait(side);
      b.record_stream(capture.stream());
    }
    Tensor c;
    {
      const GraphCapture capture(second, {.pool = pool});
      c = a + b;
    }
    first.replay();
    second.replay();
    return c.to_vector<float>();
  };
  const std::vector<float> expected(1000, 18);
  ASSERT_EQ(run(), expected);
  int failures = 0;
  testing::FaultDriver faults;
  release_unused();
  const std::size_t before = memory::allocated(device_);
  faults.reset_counts();
  ASSERT_EQ(run(), expected);
  synchronize(device_);
  for (const auto& [call, times] : faults.counts()) {
    if (call.starts_with("destroy_") || call == "restore_device") continue;
    for (std::uint64_t nth = 1; nth <= times; ++nth) {
      SCOPED_TRACE(call + " " + std::to_string(nth));
      faults.reset_counts();
      faults.fail_on(call, nth, testing::kInvalidValue);
      try {
        EXPECT_EQ(run(), expected);
      } catch (const Error&) {
        ++failures;
      }
      faults.fail_nothing();
      ASSERT_FALSE(is_current_stream_capturing());
      release_unused();
      ASSERT_EQ(memory::allocated(device_), before);
      ASSERT_EQ(outside.to_vector<float>(), std::vector<float>(1000, 7));
      ASSERT_EQ(run(), expected) << "afterwards";
    }
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace gantry
