// A model of operations between ranks: their steps, the bytes that links carry, and the time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/traffic.hpp"
#include "tools/bench/model/model_file.hpp"
#include "tools/bench/operation.hpp"

namespace gantry::bench {

// Note [The model of times]
// The time of an operation is the sum, over the kinds of links, of steps · latency and of the bytes
// of the busiest link of the kind / its bandwidth. It is Hockney's model of a message (1994), which
// Thakur, Rabenseifner and Gropp (2005) apply to collectives. A link has its bandwidth in each
// direction, and the busier direction counts. Kinds of links are not overlapped. Reductions, copies
// between a device and its host, and the launch of kernels cost nothing.
//
// Counts are not estimates: functions beside the algorithms have them, see Note [Counted traffic].

/// The bytes that links of one kind carry in an operation.
struct LinkLoad {
  std::int64_t busiest_bytes = 0;  ///< of the busiest link, in its busier direction
  std::int64_t bytes = 0;          ///< of all links
};

/// The prediction for one case.
struct Prediction {
  std::string algorithm;      ///< that gantry chooses, or the transport that carries the operation
  std::int64_t steps = 0;     ///< rounds in sequence
  std::int64_t messages = 0;  ///< of all ranks
  LinkLoad peer;              ///< of a GPU, to its peers
  LinkLoad host;              ///< of a machine, between the hosts of its ranks
  LinkLoad network;           ///< of a network interface
  double time_us = 0;
};

/// Ranks on machines that exist as a file alone. Machine by machine, a rank takes each GPU.
///
/// The environment rules the choice of algorithms as in a run: GANTRY_COLL_ALGO, GANTRY_COLL_TABLE.
class Model {
 public:
  /// Throws: InvalidArgument for an algorithm whose schedule is not gantry's.
  Model(const MachineModel& machines, int ranks);

  /// False if an algorithm is forced that does not serve the case.
  [[nodiscard]] bool serves(const Case& what) const;
  /// Precondition: serves(what).
  [[nodiscard]] Prediction predict(const Case& what) const;

 private:
  enum class Carrier { peers, hosts, levels };
  class Loads;

  [[nodiscard]] Carrier find_carrier() const;
  [[nodiscard]] ResolvedCall resolved(const Descriptor& what, int ranks,
                                      const Selector& selector) const;
  [[nodiscard]] Steps count(const Case& what, const TransferVisitor& visit,
                            std::string& algorithm) const;
  [[nodiscard]] Steps count_messages(const Descriptor& what, const TransferVisitor& visit) const;
  [[nodiscard]] bool opens(const Descriptor& what, const Selector& selector) const;

  const MachineModel& machines_;
  int ranks_;
  NodeMap map_;
  Selector selector_;       // of the group
  Selector node_selector_;  // of the ranks of one machine, in a group of several
  Carrier carrier_;
};

}  // namespace gantry::bench
