#pragma once

#include <cstddef>
#include <optional>

#include <gantry/streams/stream.hpp>

#include "collectives/call.hpp"

namespace gantry {

// The root's copy of its own array, in a broadcast into another one. Kernels of small operations
// make it. For all others the root's array is in its place, and a copy runs beside the transfer.
class OwnCopy {
 public:
  // Takes the root's output from `call`; does nothing in other calls.
  explicit OwnCopy(CollectiveCall& call);

  // Gives the output back to a `call` whose kernel makes the copy, or enqueues a copy: before the
  // transfer, since a thread that calls for several ranks must not meet a waiting kernel.
  void begin(ResolvedCall& call, const Stream& stream);
  // Behind the transfer: makes `stream` wait for a copy beside it. True if there is one: the
  // operation ends only now.
  bool complete(const Stream& stream);

 private:
  void* to_ = nullptr;  // null: there is nothing to copy
  const memory::Block* to_block_ = nullptr;
  const void* from_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<Stream> side_;  // of a long copy
};

}  // namespace gantry
