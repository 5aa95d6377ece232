// Fences: the hosts of a group's ranks wait for each other and compare their calls.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/call.hpp"
#include "collectives/control/segment.hpp"
#include "core/assert.hpp"
#include "core/processes/suspend_aware_timeout.hpp"

namespace gantry {

using flight::Queue;
using flight::Reason;

namespace {

constexpr auto kLivenessPeriod = std::chrono::milliseconds(5);
// The most ranks whose last calls an error names.
constexpr std::size_t kMostNamedCalls = 3;
constexpr int kKindBits = 8;

std::uint64_t pack(HostCall call, std::uint64_t collectives) {
  return static_cast<std::uint64_t>(call) | collectives << kKindBits;
}

std::pair<HostCall, std::uint64_t> unpack(std::uint64_t word) {
  return {static_cast<HostCall>(word & ((1U << kKindBits) - 1)), word >> kKindBits};
}

}  // namespace

std::string_view name(HostCall call) {
  switch (call) {
    case HostCall::none:
      return "collective";
    case HostCall::host_barrier:
      return "host_barrier";
    case HostCall::all_gather_bytes:
      return "all_gather_bytes";
    case HostCall::split:
      return "split";
    case HostCall::register_memory:
      return "register_memory";
    case HostCall::grow:
      return "grow";
    case HostCall::suspend:
      return "suspend";
    case HostCall::resume:
      return "resume";
    case HostCall::window:
      return "window";
  }
  __builtin_unreachable();
}

std::uint64_t ControlSegment::announce(HostCall call, std::uint64_t collectives) {
  flight::Rank& mine = view().rank(rank_);
  GANTRY_ASSERT(mine.fence.load(std::memory_order_relaxed) == fence_,
                "this rank's fence was announced elsewhere");
  // No rank is two fences behind, so two words are enough.
  mine.host_calls[++fence_ % 2].store(pack(call, collectives), std::memory_order_relaxed);
  ControlFile::publish();
  mine.fence.store(fence_, std::memory_order_release);
  return fence_;
}

void ControlSegment::await(std::uint64_t fence) { await(fence, HostCall::none, 0, {}); }

void ControlSegment::rendezvous(HostCall call, std::uint64_t collectives,
                                std::chrono::milliseconds timeout) {
  const std::uint64_t fence = announce(call, collectives);
  await(fence, call, collectives, timeout);
  compare_host_calls(fence);
}

void ControlSegment::await(std::uint64_t fence, HostCall call, std::uint64_t collectives,
                           std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  SuspendAwareTimeout countdown(timeout_.or_of_call(timeout));
  Clock::time_point next_check = Clock::now() + kLivenessPeriod;
  const auto has_arrived = [&](int rank) {
    return view().rank(rank).fence.load(std::memory_order_acquire) >= fence;
  };
  int next = 0;
  for (std::uint64_t spins = 0;; ++spins) {
    // Read first: a rank that dies after it arrived has done its part of this fence.
    const bool was_broken = broken();
    while (next < size_ && has_arrived(next)) ++next;
    if (next == size_) return ControlFile::acquire();
    if (was_broken) raise();
    // Spin briefly for ranks with a core each; yield on oversubscribed machines.
    if (spins < 200) continue;
    if (spins < 20'000) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (spins % 64 != 0) continue;
    const Clock::time_point now = Clock::now();
    if (now < next_check) continue;
    next_check = now + kLivenessPeriod;
    mark_failed_peers(fence);
    if (call != HostCall::none) detect_other_calls(fence, call, collectives);
    if (!countdown.has_expired(now)) continue;
    std::vector<int> missing;
    for (int i = 0; i < size_; ++i) {
      if (!has_arrived(i)) missing.push_back(i);
    }
    if (missing.empty()) continue;
    mark_failed(missing.front(), Reason::timed_out,
                {.text = host_timeout_text(missing, call, timeout),
                 .ranks = missing,
                 .calls = {std::string(name(call)), flight::kLateToCall}});
    require_intact();
  }
}

std::string ControlSegment::host_timeout_text(const std::vector<int>& missing, HostCall call,
                                              std::chrono::milliseconds timeout) const {
  if (call == HostCall::none) return timeout_text(missing, "enter", 0, timeout);
  std::string text = fmt::format("{}: rank {} waited {}, but rank(s) {} did not come ({})",
                                 name(call), rank_, duration_text(timeout_.or_of_call(timeout)),
                                 fmt::join(missing, ", "), timeout_.source(timeout));
  for (std::size_t i = 0; i < std::min(missing.size(), kMostNamedCalls); ++i) {
    const auto newest = view().newest(missing[i]);
    if (!newest) continue;
    text += fmt::format("; rank {}'s last call is #{} {}", missing[i],
                        flight::plain_number(static_cast<std::uint64_t>(newest->call.number)),
                        view().text(*newest));
  }
  return text;
}

// Note [Host calls]
// Every rank calls the same operations in the same order. So all ranks reach a fence for the same
// host call, after the same number of collectives. Take a rank that has not reached the fence, and
// whose newest collective has a higher number. It called that collective instead, and the
// collective's kernel waits for ranks that never enter. This is detected at once and breaks the
// group. A mismatch between ranks that all reached the fence leaves the group intact.
void ControlSegment::detect_other_calls(std::uint64_t fence, HostCall call,
                                        std::uint64_t collectives) const {
  for (int i = 0; i < size_; ++i) {
    // Read the number first: a rank records nothing later before it reaches the fence.
    const std::uint64_t newest = view().newest_number(i, Queue::collective);
    if (newest <= collectives) continue;
    if (view().rank(i).fence.load(std::memory_order_acquire) >= fence) continue;
    const std::uint64_t number = collectives + 1;
    flight::Detail detail{.ranks = {rank_, i},
                          .calls = {call_text(rank_, number, call, collectives),
                                    call_text(i, number, HostCall::none, newest)}};
    detail.text = different_calls_text(number, rank_, detail.calls[0], i, detail.calls[1]);
    mark_failed(i, Reason::mismatch, detail);
    require_intact();
  }
}

void ControlSegment::compare_host_calls(std::uint64_t fence) const {
  const auto announced = [&](int rank) {
    return view().rank(rank).host_calls[fence % 2].load(std::memory_order_relaxed);
  };
  const auto [first_call, first_number] = unpack(announced(0));
  for (int i = 1; i < size_; ++i) {
    const auto [call, number] = unpack(announced(i));
    if (call == first_call && number == first_number) continue;
    const std::uint64_t mismatched = std::min(first_number, number) + 1;
    const std::string first = call_text(0, mismatched, first_call, first_number);
    const std::string other = call_text(i, mismatched, call, number);
    throw_mismatch(different_calls_text(mismatched, 0, first, i, other), {0, i}, {first, other});
  }
}

std::string ControlSegment::call_text(int rank, std::uint64_t number, HostCall call,
                                      std::uint64_t collectives) const {
  if (collectives < number) return std::string(name(call));
  const auto record = view().find(rank, Queue::collective, number);
  return record ? view().text(*record) : std::string("a call that is no longer recorded");
}

}  // namespace gantry
