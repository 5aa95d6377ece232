// Orders between one stream and several others.
#pragma once

#include <algorithm>
#include <span>

#include <gantry/streams/stream.hpp>

namespace gantry {

// Note [Root streams]
// A wait for another device's stream costs 1.5 us of host time, and work on several devices needs
// waits before and after it. The root stream waits for all others, and all others then wait for it.
// This orders n streams with 2 (n - 1) waits instead of n (n - 1).

// Appends `stream` unless `streams` has it.
template <class Streams>
void add_stream(Streams& streams, const Stream& stream) {
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}
// Makes `root` wait for all work submitted to `others`.
void order_behind(const Stream& root, std::span<const Stream> others);
// Makes `others` wait for all work submitted to `root`.
void release_behind(std::span<const Stream> others, const Stream& root);
// Makes every stream wait for all others, through the first one as root.
void order_all(std::span<const Stream> streams);

}  // namespace gantry
