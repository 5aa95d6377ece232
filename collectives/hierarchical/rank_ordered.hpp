#pragma once

#include <functional>
#include <span>

#include <gantry/streams/stream.hpp>

#include "collectives/transport.hpp"

namespace gantry {

// Note [Reducing in rank order]
// Some libraries reduce in another order, or do not reduce at all, but can send messages. Each rank
// is the reducer of one part of the array. It receives its part of every rank's array, reduces the
// parts on its device from rank 0 on, and sends the result to all receivers. Each rank sends and
// receives about twice the size of the array, as in a ring. The bits equal the bits of every other
// transport.

// Runs sends and receives concurrently, as Transport::run_together().
using MessageExchange = std::function<void(std::span<const ResolvedCall>)>;

// Runs an all_reduce, reduce or reduce_scatter through `exchange` on `stream`. Uses about
// `scratch_bytes` of memory at a time. Throws: OutOfMemoryError; as `exchange`.
void reduce_in_rank_order(const CollectiveCall& call, const Membership& me, const Stream& stream,
                          const MessageExchange& exchange,
                          std::int64_t scratch_bytes = std::int64_t{64} << 20);

}  // namespace gantry
