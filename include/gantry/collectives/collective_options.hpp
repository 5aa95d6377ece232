#pragma once

#include <chrono>
#include <string>

#include <gantry/core/export.hpp>

namespace gantry {

/// Choices for one collective call or message. All but `tag` and `timeout` are equal on all ranks.
/// @since 0.1
struct CollectiveOptions {
  /// True adds in rank order. False permits NCCL for floating sums, where GANTRY_COLL_ALGO, the
  /// table of algorithms or `algorithm` selects it. NCCL adds in another order.
  bool reproducible = true;
  /// Factor of every input of a floating sum or avg. The product is rounded to the accumulator's
  /// type.
  double scale = 1;
  /// The algorithm of this call, by its name in GANTRY_COLL_ALGO, such as "two_shot". Empty or
  /// "auto": GANTRY_COLL_ALGO or the table decides. A name that is unknown, or whose algorithm does
  /// not serve the call, is an InvalidArgument before anything is enqueued.
  std::string algorithm = {};
  /// The most thread blocks of the kernel, 1 to 64. 0: the table decides. Algorithms without such a
  /// kernel ignore it.
  int blocks = 0;
  /// A short text for people, at most 31 bytes: flight records, traces and errors show it.
  std::string tag = {};
  /// The deadline of this call on this rank, from its start on the device. 0: the group's, see
  /// Communicator::set_timeout().
  std::chrono::milliseconds timeout = {};
};

}  // namespace gantry
