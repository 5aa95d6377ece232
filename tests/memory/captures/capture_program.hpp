// Random programs of captures, frees, replays and outside allocations, and what they must compute.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

#include "tests/memory/captures/capture_fixture.hpp"

namespace gantry::testing {

/// Every buffer holds one value in all its bytes. The model keeps a value for each, runs a graph's
/// operations on them when the graph is replayed, and so knows what an eager run would give.
class CaptureProgram {
 public:
  CaptureProgram(memory::Allocator& allocator, unsigned seed, int devices)
      : allocator_(allocator), random_(seed), devices_(devices) {
    for (int d = 0; d < devices; ++d) {
      const Device device = Device::cuda(d);
      eager_.push_back({Stream::default_stream(device), Stream::from_pool(device)});
      runs_.push_back(Stream::from_pool(device));
    }
  }
  ~CaptureProgram() { finish(); }
  CaptureProgram(const CaptureProgram&) = delete;
  CaptureProgram& operator=(const CaptureProgram&) = delete;

  void step() {
    switch (pick(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return make_outside();
      case 4:
      case 5:
        return free_outside();
      case 6:
        return begin();
      case 7:
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        return capture_something();
      case 13:
        return end();
      case 14:
      case 15:
      case 16:
        return replay();
      case 17:
        return pick(3) == 0 ? destroy() : check_one();
      case 18:
        return free_output();
      default:
        // Some backends synchronize the device then, which a capture does not allow.
        if (pick(10) == 0 && open_ == nullptr) {
          allocator_.empty_cache(Device::cuda(static_cast<int>(pick(devices_))));
        }
        return check_one();
    }
  }
  void check_all() {
    for (const auto& cell : outside_) check(*cell);
  }
  /// Ends everything and frees everything.
  void finish() {
    while (open_ != nullptr) end();
    check_all();
    outside_.clear();
    while (!graphs_.empty()) destroy();
    outside_.clear();
    for (const auto& graph : gone_) EXPECT_TRUE(graph->wait_until_gone());
    gone_.clear();
  }
  [[nodiscard]] std::uint64_t replays() const { return replays_; }
  [[nodiscard]] std::uint64_t checks() const { return checks_; }

 private:
  // A buffer and its value. Who is freed in a capture has no buffer any more, but the graph goes on
  // with its memory.
  struct Cell {
    memory::Buffer buffer;
    Stream stream;
    int value = 0;
    int branch = -1;  // in the open capture: the branch that used it last
    std::vector<int> users{};
    void* data = nullptr;
    std::size_t bytes = 0;
    bool input = false;  // a graph that lives reads or writes it
  };
  using CellPtr = std::shared_ptr<Cell>;
  struct Operation {
    CellPtr to;
    CellPtr from;  // nullptr: a fill
    int value = 0;
  };
  struct Graph {
    std::unique_ptr<CapturedGraph> native;
    int device = 0;
    std::vector<Stream> branches;
    std::vector<Operation> operations;
    std::vector<CellPtr> live;    // made inside, not freed
    std::vector<CellPtr> inputs;  // made outside
  };

  unsigned pick(std::size_t n) { return static_cast<unsigned>(random_() % n); }
  std::size_t size() {
    constexpr std::size_t kSizes[] = {512, 4096, 20000, 33000, 100000, 1 << 18, 3 << 19};
    return kSizes[std::min(pick(std::size(kSizes)), pick(std::size(kSizes)))];
  }
  int new_value() { return 1 + static_cast<int>(pick(250)); }
  template <class T>
  T& any(std::vector<T>& all) {
    return all[pick(all.size())];
  }

  CellPtr make(const Stream& stream) {
    const std::size_t bytes = size();
    memory::Buffer buffer(allocator_.allocate(stream, bytes));
    void* data = buffer.data();
    return std::make_shared<Cell>(
        Cell{.buffer = std::move(buffer), .stream = stream, .data = data, .bytes = bytes});
  }
  void make_outside() {
    if (outside_.size() >= 40) return free_outside();
    const Stream& stream = any(any(eager_));
    CellPtr cell = make(stream);
    cell->value = new_value();
    fill(cell->buffer, cell->value, stream);
    outside_.push_back(std::move(cell));
  }
  // What a graph reads has to live as long as the graph, unless the capture freed it.
  void free_outside() {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < outside_.size(); ++i) {
      if (!outside_[i]->input) candidates.push_back(i);
    }
    if (candidates.empty()) return;
    const std::size_t i = any(candidates);
    check(*outside_[i]);
    outside_.erase(outside_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void begin() {
    if (open_ != nullptr || graphs_.size() >= 6) return;
    open_ = std::make_unique<Graph>();
    open_->device = static_cast<int>(pick(devices_));
    const auto branch_of = [this](int device) {
      for (;;) {
        const Stream stream = Stream::from_pool(Device::cuda(device));
        const auto index = static_cast<std::size_t>(device);
        if (stream != eager_[index].back() && stream != runs_[index]) return stream;
      }
    };
    open_->branches.push_back(branch_of(open_->device));
    open_->native = std::make_unique<CapturedGraph>(
        open_->branches[0], pick(2) == 0 ? Begun::by_gantry : Begun::by_others);
    for (unsigned more = pick(3); more > 0; --more) {
      const int device = static_cast<int>(pick(devices_));
      if (device != open_->device && !can_access(open_->device, device)) continue;
      const Stream branch = branch_of(device);
      if (std::ranges::find(open_->branches, branch) != open_->branches.end()) continue;
      open_->native->fork(branch);
      open_->branches.push_back(branch);
    }
  }
  static bool can_access(int a, int b) {
    const Device one = Device::cuda(a);
    const Device two = Device::cuda(b);
    return can_access_peer(one, two) && can_access_peer(two, one);
  }
  // Orders the branch behind the cell's last use in the capture.
  void use(Cell& cell, int branch) {
    const auto index = static_cast<std::size_t>(branch);
    if (cell.branch >= 0 && cell.branch != branch) {
      open_->branches[index].wait(open_->branches[static_cast<std::size_t>(cell.branch)]);
    }
    cell.branch = branch;
    if (std::ranges::find(cell.users, branch) == cell.users.end()) cell.users.push_back(branch);
  }
  [[nodiscard]] int device_of(const Cell& cell) const { return cell.stream.native().device; }

  void capture_something() {
    if (open_ == nullptr) return begin();
    const int branch = static_cast<int>(pick(open_->branches.size()));
    const Stream& stream = open_->branches[static_cast<std::size_t>(branch)];
    switch (pick(4)) {
      case 0: {
        CellPtr cell = make(stream);
        write(cell, nullptr, branch);
        open_->live.push_back(std::move(cell));
        return;
      }
      case 1:
        return free_inside();
      default: {
        CellPtr to = some_cell(stream.native().device);
        CellPtr from = pick(2) == 0 ? nullptr : some_cell(stream.native().device);
        if (to == nullptr || to == from) return;
        return write(to, from, branch);
      }
    }
  }
  // Of the capture, or from outside, on the device.
  CellPtr some_cell(int device) {
    std::vector<CellPtr>& from = pick(3) == 0 ? outside_ : open_->live;
    std::vector<CellPtr> fitting;
    for (const CellPtr& cell : from) {
      if (device_of(*cell) == device && !is_foreign_input(*cell)) fitting.push_back(cell);
    }
    if (fitting.empty()) return nullptr;
    CellPtr cell = any(fitting);
    if (&from == &outside_ && !std::exchange(cell->input, true)) {
      // The graph starts after that. An output of an earlier graph was waited for.
      if (!is_captured(cell->stream.native())) cell->stream.synchronize();
      open_->inputs.push_back(cell);
    }
    return cell;
  }
  // Replays of two graphs on one cell would be two programs.
  [[nodiscard]] bool is_foreign_input(const Cell& cell) const {
    return cell.input && std::ranges::none_of(
                             open_->inputs, [&](const CellPtr& own) { return own.get() == &cell; });
  }
  void write(const CellPtr& to, const CellPtr& from, int branch) {
    const Stream& stream = open_->branches[static_cast<std::size_t>(branch)];
    use(*to, branch);
    if (from == nullptr) {
      const int value = new_value();
      driver().fill(to->data, static_cast<std::uint8_t>(value), to->bytes, stream.native());
      open_->operations.push_back({to, nullptr, value});
      return;
    }
    if (from->bytes < to->bytes) return;
    use(*from, branch);
    driver().copy(to->data, from->data, to->bytes, stream.native());
    open_->operations.push_back({to, from, 0});
  }
  void free_inside() {
    const bool is_input = pick(4) == 0 && !open_->inputs.empty();
    std::vector<CellPtr>& from = is_input ? open_->inputs : open_->live;
    if (from.empty()) return;
    const std::size_t i = pick(from.size());
    CellPtr cell = from[i];
    if (cell->buffer.data() == nullptr) return;
    for (const int user : cell->users) {
      const Stream& branch = open_->branches[static_cast<std::size_t>(user)];
      cell->buffer.block().allocator->record_stream(cell->buffer.block(), branch);
    }
    cell->buffer.reset();
    if (is_input) {
      std::erase(outside_, cell);
    } else {
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  void end() {
    if (open_ == nullptr) return;
    std::unique_ptr<Graph> graph = std::move(open_);
    for (const std::vector<CellPtr>& cells : {graph->inputs, graph->live}) {
      for (const CellPtr& cell : cells) {
        cell->branch = -1;
        cell->users.clear();
      }
    }
    if (pick(6) == 0) {
      graph->native->spoil();
      drop(*graph);
      return;
    }
    graph->native->end();
    if (pick(6) == 0) {
      graph->native->destroy();
      drop(*graph);
      gone_.push_back(std::move(graph->native));
      return;
    }
    graphs_.push_back(std::move(graph));
  }
  void drop(Graph& graph) {
    for (const CellPtr& cell : graph.inputs) cell->input = false;
    graph.live.clear();
    graph.operations.clear();
  }
  void replay() {
    // A captured stream cannot be waited for.
    if (graphs_.empty() || open_ != nullptr) return;
    Graph& graph = *any(graphs_);
    for (const std::vector<Stream>& streams : eager_) {
      for (const Stream& stream : streams) stream.synchronize();
    }
    const Stream& run = runs_[static_cast<std::size_t>(graph.device)];
    graph.native->replay(run);
    run.synchronize();
    for (const Operation& operation : graph.operations) {
      operation.to->value = operation.from == nullptr ? operation.value : operation.from->value;
    }
    for (const CellPtr& cell : graph.live) check(*cell);
    for (const CellPtr& cell : graph.inputs) check(*cell);
    ++replays_;
  }
  void destroy() {
    if (graphs_.empty()) return;
    const std::size_t i = pick(graphs_.size());
    Graph& graph = *graphs_[i];
    for (const CellPtr& cell : graph.live) {
      if (pick(4) == 0 && outside_.size() < 40 && replays_ > 0 && cell->value != 0) {
        outside_.push_back(cell);  // outputs outlive graphs
      }
    }
    if (pick(2) == 0) {
      graph.native->destroy();
      drop(graph);
      gone_.push_back(std::move(graph.native));
    } else {
      drop(graph);
      graph.native->destroy_and_wait();
    }
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // The graph goes on with the memory, as with that of temporaries.
  void free_output() {
    if (graphs_.empty()) return;
    Graph& graph = *any(graphs_);
    if (graph.live.empty()) return;
    graph.live.erase(graph.live.begin() + pick(graph.live.size()));
    for (CellPtr& cell : kept_alive_by(graph)) cell->buffer.reset();
  }
  // Cells of operations that nobody owns any more.
  static std::vector<CellPtr> kept_alive_by(Graph& graph) {
    std::vector<CellPtr> unowned;
    for (const Operation& operation : graph.operations) {
      for (const CellPtr& cell : {operation.to, operation.from}) {
        if (cell == nullptr || cell->input || cell->buffer.data() == nullptr) continue;
        if (std::ranges::find(graph.live, cell) == graph.live.end()) unowned.push_back(cell);
      }
    }
    return unowned;
  }

  void check_one() {
    if (!outside_.empty()) check(*any(outside_));
  }
  void check(Cell& cell) {
    // A value of 0: of a capture, and not written by a run yet.
    if (cell.buffer.data() == nullptr || cell.value == 0) return;
    ++checks_;
    if (is_captured(cell.stream.native())) return;
    ASSERT_TRUE(holds(cell.buffer, cell.value, cell.stream))
        << "buffer of " << cell.bytes << " bytes on " << cell.stream;
  }

  memory::Allocator& allocator_;
  std::mt19937 random_;
  const std::size_t devices_;
  std::vector<std::vector<Stream>> eager_;
  std::vector<Stream> runs_;
  std::vector<CellPtr> outside_;
  std::unique_ptr<Graph> open_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<std::unique_ptr<CapturedGraph>> gone_;  // destroyed, perhaps still heard of
  std::uint64_t replays_ = 0;
  std::uint64_t checks_ = 0;
};

}  // namespace gantry::testing
