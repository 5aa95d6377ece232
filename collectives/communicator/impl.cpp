#include "collectives/communicator/impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/communicator/pending_signals.hpp"
#include "collectives/own_copy.hpp"
#include "collectives/protocol/launch.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "streams/graphs/condition.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

namespace {

// The call with the longest timeout of its own; the first one if one of them has none.
const ResolvedCall& longest_of(std::span<const ResolvedCall> calls) {
  const auto own =
      std::ranges::max_element(calls, {}, [](const ResolvedCall& call) { return call.timeout; });
  const auto none = std::ranges::find(calls, std::chrono::milliseconds(0), &ResolvedCall::timeout);
  return none != calls.end() ? *none : *own;
}

// How long a finishing rank waits for the others to stop using its memory.
constexpr auto kFinishTimeout = std::chrono::seconds(10);

}  // namespace

Communicator::Impl::Impl(GroupSeed seed) : members(std::move(seed)) {
  withdraw_note();  // the note of a lost group
  if (!logging::enabled(logging::Level::info)) return;
  logging::info(fmt::format("{}: rank {} of {} on {} ({}), started by {}, transport {}",
                            members.label, members.self.rank, members.self.size,
                            members.self.device.str(), device_properties(members.self.device).name,
                            members.identity.source, transports.name()));
}

Communicator::Impl::~Impl() {
  if (sanitizer::is_on()) sanitizer::forget_queue(this);
  finish();
}

void Communicator::Impl::require_ready(CollectiveKind kind, const Stream& stream) {
  if (finished_) {
    throw Error(fmt::format("{}: expected a communicator in use, but the process is at its exit",
                            gantry::name(kind)));
  }
  if (is_suspended_) {
    throw InvalidArgument(
        fmt::format("{}: expected a communicator in use, but got a suspended one; call resume()",
                    gantry::name(kind)));
  }
  if (is_in_condition(stream)) require_in_condition(kind, stream);
  open_messages.raise_failure();
  ledger.require_usable();
}

void Communicator::Impl::require_in_condition(CollectiveKind kind, const Stream& stream) const {
  const std::string_view carrier = transports.name();
  if (carrier != "p2p" && carrier != "none") {
    throw CaptureError(fmt::format(
        "{}: expected a stream outside of graph_if and graph_while, since '{}' carries the "
        "operations of the group, but got one inside",
        gantry::name(kind), carrier));
  }
  require_body_stream(gantry::name(kind), stream);
}

void Communicator::Impl::require_body_stream(std::string_view op, const Stream& stream) {
  if (stream_around(stream)) return;
  throw CaptureError(fmt::format(
      "{}: expected the stream of the body of graph_if or graph_while, but got another one", op));
}

// Note [Operations in conditions]
// The flags of a condition must be equal on all ranks, which run its body equally often. Behind the
// condition every rank runs a barrier that differs from all other calls. If ranks disagree, the
// barrier of one meets an operation of the body of another: a mismatch on all ranks. Data in the
// body are wrong then, so a loop might never end by its flag. Hence a mismatch in a body breaks the
// group. A loop also ends when the group is broken, and a kernel behind it reports that.
void Communicator::Impl::note_in_condition(const Stream& stream, bool is_collective) {
  if (members.control == nullptr) return;
  DeviceWords* const words = members.control->device_words();
  driver().stop_condition(stream.native(), &words->abort);
  if (is_collective) {
    at_end_of_condition(stream, &ledger, [weak = weak_from_this()](const Stream& around) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      const std::lock_guard lock(self->mutex);
      CollectiveCall end{.what = {.kind = CollectiveKind::barrier, .ends_condition = 1}};
      (void)self->run(end, around);
    });
  }
  at_end_of_condition(stream, this, [weak = weak_from_this(), words](const Stream& around) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    protocol::launch<protocol::kernel::abort_report>({words, flight::kMessageBit}, 1, around);
    if (is_in_condition(around)) self->note_in_condition(around, /*is_collective=*/false);
  });
}

End Communicator::Impl::run(CollectiveCall& call, const Stream& stream) {
  require_ready(call.what.kind, stream);
  call.in_condition = is_in_condition(stream);
  // The root's array is in its place already.
  if (call.what.kind == CollectiveKind::broadcast && call.out == nullptr) {
    call.out = const_cast<void*>(call.in);
    call.out_block = call.in_block;
  }
  OwnCopy own_copy(call);
  transports.require_registered(call);
  ledger.number(call);
  End end;
  ledger.guarded(call.what, [&] {
    ResolvedCall resolved = transports.resolve(call);
    own_copy.begin(resolved, stream);
    if (call.in_condition && resolved.choice.algorithm == Algorithm::nccl) {
      throw CaptureError(fmt::format(
          "{}: expected an algorithm of gantry in graph_if and graph_while, but got nccl",
          gantry::name(call.what.kind)));
    }
    ledger.record(resolved, stream);
    Transport& via = transports.open(resolved);
    const auto deadline = transports.call_scope(via, resolved);
    end = via.run(resolved, stream);
    if (own_copy.complete(stream)) end.event = nullptr;
  });
  if (call.in_condition) note_in_condition(stream, !is_message(call.what.kind));
  return end;
}

End Communicator::Impl::run_together(std::span<CollectiveCall> calls, const Stream& stream) {
  require_ready(calls.front().what.kind, stream);
  const bool in_condition = is_in_condition(stream);
  for (CollectiveCall& call : calls) {
    call.in_condition = in_condition;
    ledger.number(call);
  }
  End end;
  ledger.guarded(calls.front().what, [&] {
    std::vector<ResolvedCall> resolved;
    resolved.reserve(calls.size());
    for (const CollectiveCall& call : calls) resolved.push_back(transports.resolve(call));
    for (ResolvedCall& call : resolved) {
      ledger.record(call, stream, /*is_grouped=*/true);
      call.via = &transports.open(call);
    }
    Transport* const first = resolved.front().via;
    const auto uses_first = [&](const ResolvedCall& call) { return call.via == first; };
    if (std::ranges::all_of(resolved, uses_first)) {
      const auto deadline = transports.call_scope(*first, longest_of(resolved));
      end = first->run_together(resolved, stream);
      return;
    }
    // Both ends of a message choose the same transport, but the messages use p2p and NCCL.
    const auto others = std::ranges::stable_partition(resolved, uses_first);
    const Stream side = Stream::from_pool(members.self.device);
    side.wait(stream);
    const End one = first->run_together({resolved.begin(), others.begin()}, stream);
    const StreamGuard guard(side);
    const End other = others.front().via->run_together(others, side);
    stream.wait(side);
    end.reports_losses = one.reports_losses && other.reports_losses;
  });
  if (in_condition) note_in_condition(stream, /*is_collective=*/false);
  return end;
}

void Communicator::Impl::rendezvous(HostCall call) {
  members.bootstrap->set_purpose(gantry::name(call));
  ControlSegment* const control = members.control.get();
  if (control == nullptr) return;
  ledger.require_intact();
  try {
    control->rendezvous(call, ledger.collectives());
  } catch (const CollectiveMismatch&) {
    // After a mismatch between ranks that all came, none waits over links, and the group is intact.
    if (control->broken()) transports.abort_links();
    throw;
  } catch (...) {
    transports.abort_links();
    throw;
  }
}

// Every rank is suspended or none, so the errors of a wrong state are thrown before ranks meet.
void Communicator::Impl::suspend() {
  if (is_suspended_) {
    throw InvalidArgument("suspend: expected a communicator in use, but got a suspended one");
  }
  rendezvous(HostCall::suspend);
  {
    const BlockingIsNeeded needed;
    synchronize(members.self.device);
  }
  // Another rank's kernel may still write here when this rank's is done.
  (void)members.bootstrap->all_gather("idle");
  Transport* const p2p = transports.p2p();
  const std::vector<std::string> problems =
      members.bootstrap->all_gather(p2p != nullptr ? p2p->suspension_problem() : std::string());
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    throw InvalidArgument(fmt::format("suspend: expected {} on rank {}", problems[rank], rank));
  }
  if (p2p != nullptr) p2p->suspend();
  is_suspended_ = true;
}

void Communicator::Impl::resume() {
  if (!is_suspended_) {
    throw InvalidArgument("resume: expected a suspended communicator, but got one in use");
  }
  rendezvous(HostCall::resume);
  if (Transport* const p2p = transports.p2p()) p2p->resume();
  is_suspended_ = false;
}

void Communicator::Impl::abort() noexcept {
  if (members.control) members.control->abort();
  transports.abort();
}

void Communicator::Impl::finish() noexcept {
  if (in_bad_fork()) return;  // a thread of the parent may hold the mutex
  const std::lock_guard lock(mutex);
  if (finished_) return;
  finished_ = true;
  ControlSegment* const control = members.control.get();
  const Device device = members.self.device;
  try {
    // Kernels that wait for an absent rank must not block this process. Graph launches are visible
    // only once their kernels wait.
    if (control != nullptr) control->abort_after(kFinishTimeout);
    const auto deadline = std::chrono::steady_clock::now() + kFinishTimeout;
    const auto is_waiting = [&] {
      return transports.is_waiting() ||
             std::ranges::any_of(window_signals, [](const auto& s) { return s->is_waiting(); });
    };
    const auto is_broken = [&] { return control != nullptr && control->broken(); };
    while (!is_broken() && is_waiting() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // Check again, after the other ranks were signalled.
    const bool gives_up = !is_broken() && is_waiting();
    if (control != nullptr && gives_up) control->abort();
    // A graph may have launched NCCL kernels, which only this ends.
    if (gives_up || is_broken()) transports.abort_nccl();
    const BlockingIsNeeded needed;
    if (may_synchronize_devices()) {
      synchronize(device);
    } else {
      // A synchronization would spoil the capture of a stream.
      while (!is_device_idle(device.index) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving the communicator: {}", error.what()));
  }
  window_signals.clear();
  transports.close();
  if (control != nullptr) control->finish(kFinishTimeout);
  members.bootstrap->leave();
}

}  // namespace gantry
