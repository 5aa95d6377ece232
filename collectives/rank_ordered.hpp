#pragma once

#include <functional>
#include <span>

#include <gantry/streams/stream.hpp>

#include "collectives/transport.hpp"

namespace gantry {

// Note [Reducing in rank order]
// A library that reduces in an order of its own, or not at all, can still move bytes. Ranks are
// dealt parts of the array. Each gets its part of every rank's array, side by side, folds them on
// its device from rank 0 on, and gives the result to all that want it. Every rank sends and
// receives about two arrays, as in the best ring, and the bits are those of every other transport.

// Sends and receives side by side, as Transport::run_together().
using MessageExchange = std::function<void(std::span<const CollectiveCall>)>;

// Runs an all_reduce, reduce or reduce_scatter through `exchange` on `stream`. Takes about
// `scratch_bytes` of memory at once. Throws: OutOfMemoryError; as `exchange`.
void reduce_in_rank_order(const CollectiveCall& call, const Membership& me, const Stream& stream,
                          const MessageExchange& exchange,
                          std::int64_t scratch_bytes = std::int64_t{64} << 20);

}  // namespace gantry
