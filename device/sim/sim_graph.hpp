// Captured work: nodes with their dependencies, and how they run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/sim/streams/sim_stream.hpp"

namespace gantry::sim {

/// An object that a capture and its graph retain: its `release` is called with the last of those
/// that keep it.
class UserObject {
 public:
  UserObject(void (*release)(void*), void* data) : release_(release), data_(data) {}
  ~UserObject() { release_(data_); }
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;

 private:
  void (*const release_)(void*);
  void* const data_;
};
using UserObjects = std::vector<std::shared_ptr<const UserObject>>;

/// Indices of nodes, ascending.
using NodeList = std::vector<std::size_t>;

/// One captured task.
struct GraphNode {
  Task task;
  NodeList after;  ///< the nodes that come directly before it; their indices are smaller
  const SimStream* stream = nullptr;  ///< where it was captured
  KernelWaits waits = KernelWaits::never;
  bool is_condition = false;
  NativeEvent event = nullptr;  ///< of a node that records an event or waits for one
  bool is_wait = false;         ///< of such a node: it waits
};

/// The body of a condition: it runs on the thread of the condition's stream, node by node in the
/// order of the capture, whatever streams they were captured on.
class ConditionBody {
 public:
  /// Loops end when `is_closing`.
  ConditionBody(const NativeCondition& condition, const std::atomic<bool>& is_closing)
      : condition_(condition), is_closing_(is_closing) {}
  /// The nodes that were captured into the body.
  void set_nodes(std::vector<GraphNode> nodes) { nodes_ = std::move(nodes); }
  /// Lets a loop end, too, once the word is not 0 behind a round. False for a further word behind
  /// kMostStops.
  [[nodiscard]] bool add_stop(const std::uint32_t* word);
  /// Runs the nodes as often as the flag says.
  void run() const;

 private:
  static constexpr std::size_t kMostStops = 8;  // as on GPUs

  [[nodiscard]] bool is_set() const;
  [[nodiscard]] bool is_stopped() const;

  const NativeCondition condition_;
  const std::atomic<bool>& is_closing_;
  std::vector<GraphNode> nodes_;
  std::vector<const std::uint32_t*> stops_;
};

// Note [Branches of a graph]
// The nodes that were captured on one stream are a branch. The first branch runs on the stream of
// the launch. Each other branch runs concurrently on its own stream of the graph. Only the captured
// dependencies order branches. So ThreadSanitizer finds a missing wait in a replay, too, and
// kernels of several ranks in one graph can wait for each other. A branch consists of sections:
// sequences of nodes without a dependency to or from another branch. A section is one task of its
// stream. A graph of one branch is therefore a single task, unless a node records an event or waits
// for one. Such a node is a section of its own. Each launch submits it as the call outside of a
// capture would.

/// Nodes of one branch that run without a wait between them.
struct GraphSection {
  std::size_t branch = 0;
  std::size_t first = 0, last = 0;         ///< of the branch's nodes; last is not in it
  bool is_event = false;                   ///< its one node records an event or waits for one
  NodeList after;                          ///< sections of other branches
  bool is_awaited = false;                 ///< a section of another branch waits for it
  KernelWaits waits = KernelWaits::never;  ///< the greatest of its nodes
};

/// The nodes of a graph, divided into branches and sections.
class GraphPlan {
 public:
  /// `origin` is the first branch. Streams of the graph are made by `make_stream`.
  GraphPlan(std::vector<GraphNode> nodes, const SimStream& origin);

  [[nodiscard]] const std::vector<GraphNode>& nodes() const { return nodes_; }
  /// The greatest of its nodes.
  [[nodiscard]] KernelWaits waits() const { return waits_; }
  [[nodiscard]] bool has_conditions() const;
  /// True if a node records an event or waits for one.
  [[nodiscard]] bool has_events() const;
  /// The devices of the branches behind the first.
  [[nodiscard]] std::vector<int> side_devices() const;
  /// True if the other plan differs in tasks only.
  [[nodiscard]] bool has_shape_of(const GraphPlan& other) const;
  /// Submits a node that records an event or waits for one. Returns its ticket, which is a mark.
  using SubmitEvent = std::function<std::uint64_t(const GraphNode&, SimStream&)>;
  /// Submits all nodes: the first branch to `origin`, the others to `sides`. Returns the ticket of
  /// the end on `origin`, which is a mark.
  std::uint64_t submit(SimStream& origin, std::span<SimStream* const> sides,
                       const SubmitEvent& submit_event);
  /// In the language DOT.
  [[nodiscard]] std::string describe() const;

 private:
  void divide();
  void run(const GraphSection& section);

  std::vector<GraphNode> nodes_;
  std::vector<NodeList> branches_;                ///< nodes of each
  std::vector<const SimStream*> branch_streams_;  ///< where they were captured
  std::vector<GraphSection> sections_;            ///< in the order of their first nodes
  bool is_running_ = false;                       ///< from the beginning of a run to its end
  std::vector<std::exception_ptr> errors_;        ///< of each branch, during a run
  KernelWaits waits_ = KernelWaits::never;
};

/// A captured graph. The driver guards it by `mutex`, which only host threads take.
struct SimGraph {
  std::unique_ptr<GraphPlan> plan;
  UserObjects kept;
  std::vector<SimStream*> sides;  ///< the graph's own streams
  std::mutex mutex;
  SimStream* last_stream = nullptr;  ///< of the last launch
  std::uint64_t last_ticket = 0;
};

}  // namespace gantry::sim
