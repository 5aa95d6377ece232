#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gantry/tensor/tensor.hpp>

#include "collectives/hierarchical/node_map.hpp"
#include "collectives/host/transport.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Note [Layers]
// Ranks stand in a grid: K nodes (rows) of L ranks each. What can be moved inside a node does not
// cross the network. Bytes that one rank receives over the network, for an array of S bytes per
// rank (N = K·L), against S'(K) = S·(K-1)/K for the same with one rank per node:
//
//   operation                               here                       by all ranks directly
//   all_reduce in free order                2·S'/L                     2·S'
//   all_reduce in rank order                S' + S'/L                  2·S'
//   reduce_scatter (of S) free, ordered     S'/L, S'                   S'
//   all_gather (of S)                       S'/L                       S'
//   broadcast                               at most 2·S/L              at most 2·S
//   all_to_all (of S)                       S'                         S', in L times the messages
//
// A sum in rank order is a left fold over ranks 0 … N-1: a node's partial sum is of no use unless
// its ranks come first, so contributions travel whole. An array is dealt to N owners; all L
// contributions of a node to the parts of column l are collected by its rank l (an all_to_all, no
// arithmetic), sent on within the column, and folded by the owner. Integers wrap, and min, max and
// bitwise operations round nothing: their order is free, as is that of sums for which the caller
// gives it up; nodes then reduce first.
//
// What is too small to be dealt, uneven, or between two ranks goes by all ranks directly.

// What a hierarchical transport is made of.
struct Layers {
  Membership everyone;
  NodeMap map;                         // has_layers()
  std::unique_ptr<HostTransport> all;  // over everyone
  // Over map.members(node of this rank), in that order.
  std::unique_ptr<Transport> node;
  // Over map.column(index of this rank); null: `all` serves.
  std::unique_ptr<Transport> column = {};
  // Throws what became of work inside the node that is done, if its host is told later than
  // run().
  std::function<void()> check_node = {};
};

// Ranks on several machines, several on each: one transport inside a machine and one between.
//
// Every operation first compares the calls of all ranks, on the host, so that a mismatch or a loss
// is noticed by all before anything is enqueued. If `column` is the host's, the host takes part.
class HierarchicalTransport final : public Transport {
 public:
  explicit HierarchicalTransport(Layers layers);

  std::string_view name() const override { return "hierarchical"; }
  bool supports(const Descriptor&) const override { return true; }
  // Throws as HostTransport::run().
  void run(const CollectiveCall& call, const Stream& stream) override;
  void run_together(std::span<const CollectiveCall> messages, const Stream& stream) override {
    all_->run_together(messages, stream);
  }
  bool is_waiting() const override { return node_->is_waiting() || column_->is_waiting(); }

  // As Communicator::abort, across machines. Any thread.
  void abort() noexcept override {
    all_->abort();
    node_->abort();
    column_->abort();
  }
  void close() noexcept override {
    all_->close();
    node_->close();
    column_->close();
  }

 private:
  // One operation.
  struct Run;

  Membership everyone_;
  NodeMap map_;
  std::unique_ptr<HostTransport> all_;
  std::unique_ptr<Transport> node_;
  std::unique_ptr<Transport> column_;
  std::function<void()> check_node_;
};

// The transport of ranks on several machines: in layers if `machines`, one text per rank, allow it
// and the ranks of every machine reach each other's memory; else the host's alone. `group` names
// the flight recorder, `device_name` the table of algorithms inside a machine. Collective.
// Throws: Error, PeerLostError, TimeoutError.
std::unique_ptr<Transport> make_layered_transport(const Membership& everyone, Bootstrap& bootstrap,
                                                  std::span<const std::string> machines,
                                                  std::string_view device_name,
                                                  std::chrono::milliseconds timeout,
                                                  std::string_view group);

// True if the order in which ranks' elements are combined cannot be seen in the result, or was
// given up.
bool is_free_order(const Descriptor& what);

// out = fold over `count` arrays of out's shape in `contributions`, one after the other, taken in
// the order of `order`, on out's device and current stream. Any number of arrays; bits as
// reduce_on_host.
void fold_ordered(const Tensor& out, const Tensor& contributions, std::span<const int> order,
                  const Descriptor& what);

}  // namespace gantry
