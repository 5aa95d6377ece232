#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gantry/tensor/tensor.hpp>

#include "collectives/hierarchical/network_watch.hpp"
#include "collectives/host/transport.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// The map between ranks and machines. Nodes are numbered in the order of their first ranks, and the
// ranks of a node in rank order.
class NodeMap {
 public:
  // `machines` has the name of every rank's machine.
  explicit NodeMap(std::span<const std::string> machines);

  int ranks() const { return static_cast<int>(place_of_.size()); }
  int nodes() const { return static_cast<int>(members_.size()); }
  int node_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)].node; }
  // A rank's index among the ranks of its node.
  int index_of(int rank) const { return place_of_[static_cast<std::size_t>(rank)].index; }
  int rank_at(int node, int index) const {
    return members_[static_cast<std::size_t>(node)][static_cast<std::size_t>(index)];
  }
  // The ranks of a node.
  const std::vector<int>& members(int node) const {
    return members_[static_cast<std::size_t>(node)];
  }
  // The ranks with this index, one per node. Precondition: is_even().
  std::vector<int> column(int index) const;

  // True if every node has the same number of ranks.
  bool is_even() const;
  // Ranks of a node. Precondition: is_even().
  int width() const { return static_cast<int>(members_.front().size()); }
  // True if there are several nodes, each with the same number of ranks, more than one.
  bool is_hierarchical() const { return nodes() > 1 && is_even() && width() > 1; }
  // True if is_hierarchical(), and a group over peer memory holds the ranks of a node.
  bool has_peer_nodes() const;

 private:
  struct Place {
    int node = 0;
    int index = 0;
  };

  std::vector<Place> place_of_;
  std::vector<std::vector<int>> members_;
};

// Note [Hierarchical collectives]
// The ranks form a grid: K nodes (rows) of L ranks each. Transfers inside a node do not cross the
// network. The table shows the bytes that one rank receives over the network, for an array of S
// bytes per rank and N = K·L ranks. S'(K) = S·(K-1)/K is the volume with one rank per node.
//
//   operation                               hierarchical               flat
//   all_reduce in free order                2·S'/L                     2·S'
//   all_reduce in rank order                S' + S'/L                  2·S'
//   reduce_scatter (of S) free, ordered     S'/L, S'                   S'
//   all_gather (of S)                       S'/L                       S'
//   broadcast                               at most 2·S/L              at most 2·S
//   all_to_all (of S)                       S'                         S', in L times the messages
//
// A rank-ordered reduction combines ranks 0 … N-1 one after the other. A node's partial result is
// usable only if the ranks before the node are already combined. So every rank's data are sent
// unreduced. Each of the N ranks reduces one part. Rank l of a node collects the node's L inputs to
// the parts of column l, with an all_to_all. They are then sent within the column and reduced
// there. Integer sums wrap, and min, max and bitwise operations do not round: their order is free.
// Floating sums have a free order if the caller allows it. Then nodes reduce first.
//
// Small and uneven operations, and messages between two ranks, use the flat transport.

// The parts of a hierarchical transport.
struct HierarchyParts {
  Membership everyone;
  NodeMap map;                         // is_hierarchical()
  std::unique_ptr<HostTransport> all;  // the flat transport of all ranks
  // The transport of map.members(this rank's node), in that order.
  std::unique_ptr<Transport> node;
  // The transport of map.column(this rank's index); null: made from `all`.
  std::unique_ptr<Transport> column = {};
  // Throws errors of completed work inside the node, if run() does not report them itself.
  std::function<void()> check_node = {};
  // If NCCL is the column: the deadline of Note [Losses between machines], and what starts NCCL
  // among all ranks for operations on unequal blocks, or returns null on all ranks.
  GroupTimeout timeout{std::chrono::milliseconds(0)};
  std::function<std::unique_ptr<Transport>()> make_flat = {};
};

// A transport of several machines with several ranks each: one transport inside each machine and
// one between machines.
//
// Every operation first compares the calls of all ranks on the host. So all ranks detect a mismatch
// or a loss before they enqueue work. If `column` is a host transport, run() blocks as it does.
class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(HierarchyParts layers);

  std::string_view name() const override { return "hierarchical"; }
  // Throws as HostTransport::run().
  End run(const ResolvedCall& call, const Stream& stream) override;
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override;
  bool is_waiting() const override {
    return node_->is_waiting() || column_->is_waiting() || (flat_ && flat_->is_waiting());
  }
  bool uses_nccl() const override { return watch_ != nullptr; }

  // As Communicator::abort, across machines. Any thread.
  void abort() noexcept override {
    all_->abort();
    end_work();
  }
  void await_abort() noexcept override {
    column_->await_abort();
    if (flat_) flat_->await_abort();
  }
  void require_intact() const override {
    if (watch_) watch_->require_intact();
  }
  void close() noexcept override {
    if (watch_) watch_->await_others();
    all_->close();
    node_->close();
    column_->close();
  }

 private:
  // One operation.
  struct Run;
  // Runs one operation, and waits for its end, after a comparison of the ranks' calls.
  template <class Operation>
  End run_compared(const ResolvedCall& call, const Stream& stream, Operation operation);
  // Starts NCCL among all ranks at the first call. Returns false if it carries no unequal blocks.
  bool carries_unequal_blocks(const ResolvedCall& call, const Stream& stream);
  // Ends enqueued work of the device. Any thread; does not block.
  void end_work() noexcept {
    node_->abort();
    column_->abort();
    if (Transport* const flat = started_flat_) flat->abort();
  }
  std::string asynchronous_error() const override {
    const Transport* const flat = started_flat_;
    const std::string error = column_->asynchronous_error();
    return error.empty() && flat != nullptr ? flat->asynchronous_error() : error;
  }
  template <class Exchange>
  void over_links(Exchange exchange);
  [[noreturn]] void rethrow_failure(const CollectiveCall& call, const Stream& stream);

  Membership everyone_;
  NodeMap map_;
  std::unique_ptr<HostTransport> all_;
  std::unique_ptr<Transport> node_;
  std::unique_ptr<Transport> column_;
  std::function<void()> check_node_;
  std::function<std::unique_ptr<Transport>()> make_flat_;
  std::unique_ptr<Transport> flat_;  // of unequal blocks; null: all_
  std::atomic<Transport*> started_flat_{nullptr};
  std::unique_ptr<NetworkWatch> watch_;  // null unless NCCL is the column
};

// Makes the transport of ranks on several machines. It is hierarchical if the machines have equally
// many ranks, which reach each other's memory; else all data go between the ranks directly. NCCL
// moves the data between machines, unless there is a reason in `why_no_nccl`, or NCCL does not
// start on a rank; then the links between hosts do. `machines` has the name of every rank's
// machine. `group` names the flight recorder, `device_name` selects the algorithm table inside a
// machine. Collective. Throws: Error, PeerLostError, TimeoutError.
std::unique_ptr<Transport> make_hierarchical_transport(
    const Membership& everyone, Bootstrap& bootstrap, std::span<const std::string> machines,
    std::string_view device_name, GroupTimeout timeout, std::string_view group,
    std::string why_no_nccl = "it was not chosen");

// True if the result does not depend on the order of ranks, or if the caller allows any order.
bool is_free_order(const Descriptor& what);

// Reduces the arrays of `contributions`, which are adjacent and have out's shape, into `out` in the
// order of `order`, on out's device and current stream. Any number of arrays. The bits equal those
// of reduce_on_host().
void reduce_ordered(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                    const Descriptor& what);

}  // namespace gantry
