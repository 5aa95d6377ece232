#include <gantry/collectives/work.hpp>

#include <chrono>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/communicator/work_state.hpp"
#include "device/sync_debug_driver.hpp"

namespace gantry {

namespace {

[[noreturn]] void throw_open_group() {
  throw InvalidArgument(
      "Work: expected an operation whose group() has ended, but got one that is still collected");
}

}  // namespace

void Work::wait() const {
  if (state_ && state_->is_open) throw_open_group();
  if (state_ && state_->done) state_->done->wait(Stream::current(state_->device));
}

bool Work::query() const {
  if (!state_) return true;
  if (state_->is_open) throw_open_group();
  const std::shared_ptr<Event>& done = state_->done;
  const bool is_reached = !done || driver().event_reached(done->native_handle());
  // Errors of this call take precedence over other faults of its device, which query() throws.
  if (state_->check) state_->check(!is_reached);
  return (!done || done->query()) && is_reached;
}

void Work::synchronize() const {
  announce_host_wait("waiting for a collective operation");
  // Polls rather than blocks: kernels of other libraries may wait for a dead rank.
  for (int polls = 0; !query(); ++polls) {
    if (polls < 1000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace gantry
