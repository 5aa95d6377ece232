// Plans of operations, for the kernels of one group.
#pragma once

#include <span>

#include "collectives/call.hpp"
#include "collectives/protocol/plan.hpp"

namespace gantry {

// The reduction of an operation's elements.
protocol::ReduceBy reduce_by(const Descriptor& what, int ranks);

// The plan of a one-shot in `blocks` blocks, for all kinds except send and recv; and of one with
// slices of different sizes. `may_open`, the same on all ranks, lets it use open arrays instead of
// staging: see Note [Open arrays].
protocol::StagedPlan plan_one_shot(const protocol::Group& group, const CollectiveCall& call,
                                   int blocks, bool may_open = false);
protocol::UnevenPlan plan_uneven(const protocol::Group& group, const CollectiveCall& call,
                                 int blocks);
// The plan of a two-shot: all_reduce, reduce, broadcast among three ranks or more.
protocol::StagedPlan plan_two_shot(const protocol::Group& group, const CollectiveCall& call,
                                   int blocks, bool may_open = false);
// The plan of a one-shot by LL or LL128, for slices of one size: at most kMaxLlPayload by LL, and
// at most the rows of both shots by LL128.
protocol::FlaggedPlan plan_flagged_one_shot(const protocol::Group& group,
                                            const CollectiveCall& call);
// The plan of a two-shot by LL128, up to kMaxLl128TwoShot bytes.
protocol::FlaggedPlan plan_flagged_two_shot(const protocol::Group& group,
                                            const CollectiveCall& call);
protocol::Message plan_message(const protocol::Group& group, const CollectiveCall& call);
// The plan of the messages of one kernel, kMostMessages at most.
protocol::MessagePlan plan_messages(const protocol::Group& group,
                                    std::span<const ResolvedCall> calls);

}  // namespace gantry
