// Plans of operations, for the kernels of one group.
#pragma once

#include <optional>
#include <span>

#include "collectives/call.hpp"
#include "collectives/protocol/plan.hpp"

namespace gantry {

// The reduction of an operation's elements.
protocol::ReduceBy reduce_by(const Descriptor& what, int ranks);

// Blocks of the kernel of a collective.
int kernel_blocks(const ResolvedCall& call);

// True if an operation of this choice and size gains from arrays that all ranks can access. The
// same on all ranks.
bool is_worth_opening(const ResolvedCall& call);

// The arrays that a rank opens in a call.
struct Opening {
  bool is_possible = false;  // the same on all ranks
  // They are open: their addresses on each rank.
  std::optional<protocol::OpenArrays> arrays = {};
};

// The plan of a one-shot in `blocks` blocks, for all kinds except send and recv; and of one with
// slices of different sizes. It may use open arrays instead of staging: see Note [Open arrays].
protocol::StagedPlan plan_one_shot(const protocol::Group& group, const CollectiveCall& call,
                                   int blocks, const Opening& opening = {});
protocol::UnevenPlan plan_uneven(const protocol::Group& group, const CollectiveCall& call,
                                 int blocks);
// The plan of a two-shot: all_reduce, reduce, broadcast among three ranks or more.
protocol::StagedPlan plan_two_shot(const protocol::Group& group, const CollectiveCall& call,
                                   int blocks, const Opening& opening = {});
// The plan of a one-shot by LL or LL128, for slices of one size: at most kMaxLlPayload by LL, and
// at most the rows of both shots by LL128.
protocol::FlaggedPlan plan_flagged_one_shot(const protocol::Group& group,
                                            const CollectiveCall& call);
// The plan of a two-shot by LL128, up to kMaxLl128TwoShot bytes.
protocol::FlaggedPlan plan_flagged_two_shot(const protocol::Group& group,
                                            const CollectiveCall& call);
// The plan of a message. `at_peer`: where the receiver of a send has its data open; null: nowhere.
protocol::Message plan_message(const protocol::Group& group, const CollectiveCall& call,
                               std::byte* at_peer);
// The plan of the messages of one kernel, kMostMessages at most. `at_peers` belong to the calls:
// where the receiver of a send has its data open; null: nowhere.
protocol::MessagePlan plan_messages(const protocol::Group& group,
                                    std::span<const ResolvedCall> calls,
                                    std::span<std::byte* const> at_peers);

}  // namespace gantry
