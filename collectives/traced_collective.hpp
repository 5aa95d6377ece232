// Calls of collectives and messages in traces.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/transport.hpp"
#include "core/trace_log.hpp"
#include "kernels/op_scope.hpp"

namespace gantry {

// One call, from its beginning to the end of its submission. Kernels inside have its name, and
// their events lie within the call's. Costs two loads while nothing observes.
class TracedCollective {
 public:
  // A collective or a single message.
  TracedCollective(const CollectiveCall& call, int ranks) noexcept
      : TracedCollective(gantry::name(call.what.kind), ranks) {
    call_ = &call;
  }
  // A call of several messages or transfers: send_recv(), group() or all_reduce_coalesced().
  TracedCollective(std::string_view name, int ranks) noexcept
      : name_(name),
        ranks_(ranks),
        is_on_(trace::is_on()),
        begin_ns_(is_on_ ? trace::now_ns() : 0) {
    if (is_on_) algorithm_ = Algorithm::automatic;
  }
  ~TracedCollective() {
    if (is_on_) end();
  }
  TracedCollective(const TracedCollective&) = delete;
  TracedCollective& operator=(const TracedCollective&) = delete;

  // Tells the messages of the call.
  void note_messages(std::span<const CollectiveCall> calls) noexcept {
    if (!is_on_) return;
    messages_.clear();
    for (const CollectiveCall& call : calls) keep(call);
  }
  // Tells one more transfer of the call.
  void note_message(const CollectiveCall& call) noexcept {
    if (is_on_) keep(call);
  }
  // Tells the algorithm of the call that the calling thread submits.
  static void note_algorithm(Algorithm algorithm) noexcept { algorithm_ = algorithm; }

 private:
  void end() noexcept;
  void keep(const CollectiveCall& call) noexcept;

  static constinit thread_local Algorithm algorithm_;

  const std::string_view name_;
  const int ranks_;
  const bool is_on_;
  const std::int64_t begin_ns_;
  const CollectiveCall* call_ = nullptr;
  std::vector<CollectiveCall> messages_;
  const trace::Label label_{name_};
  const kernels::OpScope scope_{name_, kernels::OpScope::Event::external};
};

}  // namespace gantry
