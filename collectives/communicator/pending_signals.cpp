#include "collectives/communicator/pending_signals.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include <gantry/extend/driver.hpp>

#include "collectives/communicator/impl.hpp"

namespace gantry {
namespace {

bool event_has_ended(const std::shared_ptr<Event>& event) {
  return driver().event_reached(event->native_handle());
}

}  // namespace

void PendingSignals::begin(const Stream& stream, int peer, bool sends, std::string text) {
  const std::uint64_t number = static_cast<std::uint64_t>(peer) << 1 | (sends ? 1 : 0);
  started_deadlines().begin(stream, number, std::move(text));
}

void PendingSignals::end(const Stream& stream) {
  deadlines_->end(stream);
  auto event = std::make_shared<Event>();
  event->record(stream);
  const std::lock_guard lock(mutex_);
  std::erase_if(events_, event_has_ended);
  events_.push_back(std::move(event));
}

bool PendingSignals::is_waiting() const {
  const std::lock_guard lock(mutex_);
  return !std::ranges::all_of(events_, event_has_ended);
}

OperationDeadlines& PendingSignals::started_deadlines() {
  if (deadlines_) return *deadlines_;
  const auto on_failure = [on_late = on_late_](std::uint64_t number, std::exception_ptr why) {
    std::string text;
    try {
      std::rethrow_exception(std::move(why));
    } catch (const std::exception& error) {
      text = error.what();
    }
    on_late(static_cast<int>(number >> 1), (number & 1) != 0, text);
  };
  deadlines_.emplace(device_.index, timeout_,
                     OperationDeadlines::Actions{.find_error = nullptr,
                                                 .on_failure = on_failure,
                                                 .cause = "the other rank did not do its part"});
  return *deadlines_;
}

}  // namespace gantry
