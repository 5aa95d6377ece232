#include <gantry/collectives/work.hpp>

#include <chrono>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/communicator/call_ledger.hpp"
#include "collectives/communicator/impl.hpp"
#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

namespace {

[[noreturn]] void throw_open_group() {
  throw InvalidArgument(
      "Work: expected an operation whose group() has ended, but got one that is still collected");
}

[[noreturn]] void throw_captured(const Device& device) {
  throw CaptureError(
      "Work: expected an operation that runs, but got one that a capture took into a graph; "
      "Graph::replay() runs it, and the stream of the replay tells when it is complete",
      device.str());
}

}  // namespace

void Work::State::check(bool pending) const {
  if (failure) std::rethrow_exception(failure);
  if (!ledger) return;
  for (std::uint64_t call = first_call; call <= last_call; ++call) {
    // A call of a broken group counts as failed, if its transport does not report losses.
    ledger->check(call, pending || !reports_losses);
  }
}

// The group may still use the event before.
void Work::State::mark_end(const Stream& stream) {
  capture = driver().capture_id(stream.native());
  captured_on.reset();
  if (capture != 0) captured_on = stream;
  done = std::make_shared<Event>();
  done->record(stream);
}

bool Work::State::is_in_capture() const {
  return captured_on && driver().capture_id(captured_on->native()) == capture;
}

void Work::wait() const {
  if (!state_) return;
  if (state_->is_open) throw_open_group();
  // Replays of the graph order the operation with later work.
  if (state_->captured_on && !state_->is_in_capture()) return;
  if (state_->done) state_->done->wait(Stream::current(state_->device));
}

bool Work::query() const {
  if (!state_) return true;
  if (state_->is_open) throw_open_group();
  if (state_->captured_on) {
    state_->check(false);
    throw_captured(state_->device);
  }
  const std::shared_ptr<Event>& done = state_->done;
  const bool is_reached = !done || driver().event_reached(done->native_handle());
  // Errors of this call take precedence over other faults of its device, which query() throws.
  state_->check(!is_reached);
  return (!done || done->query()) && is_reached;
}

namespace {

// Waits a short time, longer after many polls.
void pause_between_polls(int polls) {
  if (polls < 1000) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

void Work::synchronize() const {
  announce_host_wait("waiting for a collective operation");
  // Polls rather than blocks: kernels of other libraries may wait for a dead rank.
  for (int polls = 0; !query(); ++polls) pause_between_polls(polls);
}

bool Work::wait_for(std::chrono::milliseconds timeout) const {
  announce_host_wait("waiting for a collective operation");
  const auto begin = std::chrono::steady_clock::now();
  for (int polls = 0; !query(); ++polls) {
    // Not begin + timeout, which may not fit the clock.
    if (std::chrono::steady_clock::now() - begin >= timeout) return false;
    pause_between_polls(polls);
  }
  return true;
}

}  // namespace gantry
