// The calls of one group on this rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include <gantry/streams/stream.hpp>

#include "collectives/communicator/members.hpp"
#include "collectives/communicator/transport_set.hpp"
#include "collectives/transport.hpp"
#include "device/drivers/fault_source.hpp"

namespace gantry {

// The least of the calls' numbers that threads have reported.
//
// Thread safety: any thread.
class LeastCall {
 public:
  // Threads that report at one time lose no number.
  void lower(std::uint64_t call) noexcept {
    std::uint64_t seen = call_.load();
    while (call < seen && !call_.compare_exchange_weak(seen, call)) {
    }
  }
  // UINT64_MAX before the first report.
  [[nodiscard]] std::uint64_t get() const noexcept { return call_.load(); }

 private:
  std::atomic<std::uint64_t> call_{UINT64_MAX};
};

// Keeps the latest faults. raise_unreported() throws each fault once; raise() throws it for its
// call at any time. Thread safety: any thread may call every member.
class CallFaults {
 public:
  // `is_unreported`: raise_unreported() has to throw this fault.
  void add(CallFault fault, bool is_unreported);
  bool has_unreported() const noexcept { return has_unreported_.load(std::memory_order_acquire); }
  // The error of the lowest call that failed; null: none.
  std::exception_ptr oldest();
  // Throws the fault of `call`, if there is one.
  void raise(std::uint64_t call);
  // Throws the unreported fault of the lowest call, if there is one.
  void raise_unreported();

 private:
  struct Entry {
    std::exception_ptr error;
    bool is_unreported;
  };
  static constexpr std::size_t kKept = 64;

  void update_unreported();
  [[noreturn]] void report(Entry& entry);

  std::mutex mutex_;
  std::map<std::uint64_t, Entry> faults_;  // by call
  std::atomic<bool> has_unreported_{false};
};

// Numbers the calls of a group, and knows which of them failed.
// Thread safety: number(), record() and guarded() one at a time; the rest any thread.
class CallLedger final : public FaultSource {
 public:
  // Both outlive it. Device calls throw the group's faults from now on.
  CallLedger(const Members& members, const TransportSet& transports);
  ~CallLedger() override;
  CallLedger(const CallLedger&) = delete;
  CallLedger& operator=(const CallLedger&) = delete;

  // Gives the call its number, unless it continues the call before it. Ranks send and receive
  // independently, so messages have their own numbers.
  void number(CollectiveCall& call);
  // The number of the last collective.
  [[nodiscard]] std::uint64_t collectives() const { return collectives_; }
  // Writes the call to the flight recorder, and its algorithm to the trace.
  void record(const ResolvedCall& call, const Stream& stream, bool is_grouped = false) const;
  // Runs `submit`, and tells the other ranks if it throws.
  template <class Submit>
  void guarded(const Descriptor& what, Submit submit) {
    try {
      submit();
    } catch (...) {
      tell_failure(what);
      throw;
    }
  }

  // Throws an earlier error that is known to prevent every further operation.
  void require_usable();
  // Throws if the group is lost.
  void require_intact();
  // Throws the error of a failed call up to `call`. If `pending`, also throws if the group is
  // broken.
  void check(std::uint64_t call, bool pending);
  // The error that broke the group, or the oldest of its failed calls; null: none. Reports nothing.
  [[nodiscard]] std::exception_ptr failure() noexcept;
  // Stops device calls from throwing the loss of this group, which the caller knows.
  void abandon() noexcept { loss_is_known_ = true; }

  int fault_device() const noexcept override { return members_.self.device.index; }
  // Once the caller knows that the group is lost, later failed calls are not reported.
  bool has_fault() const noexcept override;
  void raise_fault() override;

 private:
  // Handles the exception that is being caught.
  void tell_failure(const Descriptor& what);
  // Moves the control segment's pending fault to faults_, if there is one. Returns its call.
  std::optional<std::uint64_t> take_fault();
  ControlSegment* control() const { return members_.control.get(); }

  const Members& members_;
  const TransportSet& transports_;
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
  CallFaults faults_;
  LeastCall first_lost_;  // calls from this one on failed
  LeastCall first_mismatch_;
  std::atomic<bool> loss_is_known_{false};
};

}  // namespace gantry
