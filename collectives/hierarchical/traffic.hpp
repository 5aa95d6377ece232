// Counts of transfers of hierarchical collectives. See Note [Counted traffic].
#pragma once

#include <functional>

#include "collectives/call.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/traffic.hpp"

namespace gantry {

// Counts a collective among the ranks of one node, which are numbered from 0.
using NodeCounter =
    std::function<Steps(const ResolvedCall& part, int ranks, const TransferVisitor& visit)>;

// Counts what a HierarchicalTransport of map.ranks() ranks moves for a collective on blocks of one
// size, if links between hosts are its column.
Steps count_by_levels(const Descriptor& what, const NodeMap& map, const NodeCounter& count_in_node,
                      const TransferVisitor& visit);

}  // namespace gantry
