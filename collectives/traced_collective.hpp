// Calls of collectives in traces.
#pragma once

#include <cstdint>

#include "collectives/descriptor.hpp"
#include "core/trace_log.hpp"

namespace gantry {

// The submission of one call. Costs one load while no trace is recorded.
class TracedCollective {
 public:
  TracedCollective(const Descriptor& what, int ranks) noexcept
      : what_(what), ranks_(ranks), is_on_(trace::is_on()) {
    if (is_on_) begin();
  }
  ~TracedCollective() {
    if (is_on_) end();
  }
  TracedCollective(const TracedCollective&) = delete;
  TracedCollective& operator=(const TracedCollective&) = delete;

  // Tells the algorithm of the call that the calling thread submits.
  static void note_algorithm(Algorithm algorithm) noexcept { algorithm_ = algorithm; }

 private:
  void begin() noexcept;
  void end() noexcept;

  static inline thread_local Algorithm algorithm_ = Algorithm::automatic;

  const Descriptor& what_;
  const int ranks_;
  const bool is_on_;
  std::int64_t begin_ns_ = 0;
  trace::Label label_{name(what_.kind)};
};

}  // namespace gantry
