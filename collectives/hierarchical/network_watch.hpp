// Ranks that are lost or late while NCCL moves data between machines.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <gantry/streams/stream.hpp>

#include "collectives/bootstrap/group_timeout.hpp"
#include "collectives/call.hpp"
#include "collectives/control/operation_deadlines.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Note [Losses between machines]
// A kernel of NCCL that waits for a rank never ends by itself. The links between the hosts stay
// open beside NCCL, and know more than it does:
//
// - A process that ends closes its links. So every other rank has the error, which names the rank,
//   within a moment, and ends NCCL.
// - At the deadline of an operation, which counts from its begin on the device, a rank probes all
//   others. A stopped process does not reply. Other processes reply with the number of operations
//   that their devices have begun: the one that has not begun this operation is late. A rank that
//   has begun it waits, too, and is not. The rank that found it tells all others.
// - NCCL may find a broken connection before the links do. Then the rank waits for the links'
//   diagnosis, because NCCL does not name the rank.

// Watches the operations of one rank that NCCL carries between machines.
// Thread safety: begin() and end() by one thread at a time; the rest by any.
class NetworkWatch {
 public:
  struct Actions {
    // Returns NCCL's asynchronous error; empty: none.
    std::function<std::string()> find_error;
    // Ends the enqueued work. Must not block.
    std::function<void()> abort;
  };

  // Requires that `links` have a monitor.
  NetworkWatch(const Membership& everyone, std::shared_ptr<HostLinks> links, GroupTimeout timeout,
               Actions actions);
  // No action runs afterwards.
  ~NetworkWatch();
  NetworkWatch(const NetworkWatch&) = delete;
  NetworkWatch& operator=(const NetworkWatch&) = delete;

  // Enclose the submission of an operation on all ranks.
  void begin(const Stream& stream, const ResolvedCall& call) {
    ++submitted_;
    deadlines_.begin(stream, static_cast<std::uint64_t>(call.what.call), call.what.str(),
                     call.timeout);
  }
  void end(const Stream& stream) { deadlines_.end(stream); }

  // Makes `why` the error of this rank, unless it has one, and ends its work.
  void fail(std::exception_ptr why) noexcept { State::fail(*state_, std::move(why)); }
  // Throws the error of this rank, if it has one.
  void require_intact() const;
  [[nodiscard]] bool is_intact() const noexcept { return !state_->is_broken; }
  // Waits a short time for the links' error, which names a rank. Then require_intact() throws it.
  void await_diagnosis() const noexcept;
  // Waits with a timeout until all ranks have finished this rank's operations, or have left. Until
  // then NCCL may still send this rank's data.
  void await_others() noexcept;

 private:
  struct State {
    const Membership everyone;
    const std::shared_ptr<HostLinks> links;

    std::mutex mutex;  // guards the following members
    Actions actions;   // empty after the end of the watch
    std::exception_ptr why;

    std::atomic<bool> is_broken{false};

    LinkMonitor& monitor() const { return *links->monitor(); }
    static void fail(State& state, std::exception_ptr why) noexcept;
    // Waits for the links' error. Null: they have none.
    std::exception_ptr await_links() const noexcept;
    std::exception_ptr find_error(const std::string& text);
    std::exception_ptr find_lateness(std::uint64_t number, std::chrono::milliseconds timeout,
                                     std::string_view source) const;
  };
  static OperationDeadlines::Actions deadline_actions(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with threads that may be blocked in the driver
  OperationDeadlines deadlines_;
  std::uint64_t submitted_ = 0;
};

}  // namespace gantry
