// Operations as plans for the kernels of one group.
#pragma once

#include <span>

#include "collectives/protocol/plan.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// How the elements of an operation are combined.
protocol::Combination combination(const Descriptor& what, int ranks);

// The plan that moves every offer straight to its taker, in `blocks` blocks. Any kind but send and
// recv.
protocol::Exchange plan_exchange(const protocol::Group& group, const CollectiveCall& call,
                                 int blocks);
// The same over a wire, when all shares are of one size: in packets at most kMaxPacketPayload, in
// lines what goes into the rows of both phases.
protocol::WireExchange plan_wire_exchange(const protocol::Group& group, const CollectiveCall& call);
// The plan by way of owners: all_reduce, reduce, broadcast among three ranks or more.
protocol::Relay plan_relay(const protocol::Group& group, const CollectiveCall& call, int blocks);
// The plan from rank to rank: reduce of elements that are their own accumulators, and broadcast,
// among three ranks or more.
protocol::Chain plan_chain(const protocol::Group& group, const CollectiveCall& call, int blocks);
// As plan_relay(), in lines, up to kMaxLineRelay bytes.
protocol::LineRelay plan_line_relay(const protocol::Group& group, const CollectiveCall& call);
protocol::Message plan_message(const protocol::Group& group, const CollectiveCall& call);
// The plan of sends and receives that one kernel moves, kMostMessages at most.
protocol::MessagePlan plan_messages(const protocol::Group& group,
                                    std::span<const CollectiveCall> calls);

// Bytes of one rank's message as nccl-tests count them: the larger of what a rank gives and gets.
std::int64_t message_bytes(const Descriptor& what, int ranks);

}  // namespace gantry
