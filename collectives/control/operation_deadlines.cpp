#include "collectives/control/operation_deadlines.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/assert.hpp"
#include "core/processes/background_thread.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "device/drivers/background_calls.hpp"

namespace gantry {

namespace {

constexpr auto kPollPeriod = std::chrono::milliseconds(20);
// The timeout of a driver query.
constexpr auto kAnswerTimeout = std::chrono::milliseconds(200);

}  // namespace

struct OperationDeadlines::State {
  State(int device, GroupTimeout timeout, Actions actions)
      : device(device), timeout(std::move(timeout)), actions(std::move(actions)) {}
  // A background thread may be the last holder. Events that remain at exit end with the process.
  ~State() {
    const ExitLock::Shared held(background_calls());
    if (!held) return;
    for (const Operation& one : operations)
      free_events.insert(free_events.end(), {one.begun, one.ended});
    for (const NativeEvent event : free_events) driver().destroy_event(event);
  }

  struct Operation {
    std::uint64_t call = 0;
    std::string text;
    std::chrono::milliseconds timeout = {};  // of the call; 0: the group's
    NativeEvent begun = nullptr;
    NativeEvent ended = nullptr;
    bool is_enclosed = false;  // end() was called
  };

  const int device;
  const GroupTimeout timeout;
  const Actions actions;

  std::mutex mutex;  // guards the following members
  std::condition_variable changed;
  std::deque<Operation> operations;
  std::vector<NativeEvent> free_events;
  std::uint64_t first = 0;    // the number of finished operations
  std::uint64_t answers = 0;  // the number of driver results
  bool has_begun = false;     // the oldest operation, by the last driver result
  bool is_over = false;       // the threads stop
  // The last arguments of on_progress(), which one thread calls.
  std::uint64_t told_begun = 0;
  std::uint64_t told_finished = 0;

  // Queries the driver for the oldest operation until the object is destroyed.
  void ask() {
    std::unique_lock lock(mutex);
    while (!is_over) {
      changed.wait(lock, [&] { return is_over || is_ready(); });
      if (is_over) return;
      const Operation oldest = operations.front();
      lock.unlock();
      bool ended = false;
      bool begun = false;
      {
        const ExitLock::Shared held(background_calls());
        if (!held) return;  // Note [Background threads at exit]
        ended = driver().event_reached(oldest.ended);
        begun = ended || driver().event_reached(oldest.begun);
      }
      lock.lock();
      ++answers;
      has_begun = begun && !ended;
      GANTRY_ASSERT(!operations.empty() && operations.front().ended == oldest.ended,
                    "the oldest operation has left the queue elsewhere");
      if (ended) {
        operations.pop_front();
        ++first;
        free_events.insert(free_events.end(), {oldest.begun, oldest.ended});
      }
      report_progress(lock);
      if (!ended && !is_over) changed.wait_for(lock, kPollPeriod, [&] { return is_over; });
    }
  }
  void report_progress(std::unique_lock<std::mutex>& lock) {
    const std::uint64_t finished = first;
    const std::uint64_t begun = first + (has_begun ? 1 : 0);
    if (!actions.on_progress || is_over || (begun == told_begun && finished == told_finished))
      return;
    told_begun = begun;
    told_finished = finished;
    lock.unlock();
    actions.on_progress(begun, finished);
    lock.lock();
  }
  bool is_ready() const { return !operations.empty() && operations.front().is_enclosed; }

  // Counts the time of the oldest operation.
  void count() {
    std::unique_lock lock(mutex);
    while (!is_over) {
      changed.wait(lock, [&] { return is_over || is_ready(); });
      const std::uint64_t watched = first;
      std::uint64_t answered = answers;
      SuspendAwareTimeout waited(timeout.or_of_call(operations.front().timeout));
      SuspendAwareTimeout unanswered(kAnswerTimeout);
      while (!is_over && is_ready() && first == watched) {
        changed.wait_for(lock, kPollPeriod, [&] { return is_over; });
        if (is_over || first != watched) break;
        if (answered != std::exchange(answered, answers)) unanswered.restart();
        const bool is_stuck = unanswered.has_expired();
        if (!has_begun && !is_stuck) waited.restart();
        std::exception_ptr why = find_failure(lock);
        if (!why && first == watched && waited.has_expired()) {
          why = lateness(lock);
          if (!why) waited.restart();
        }
        if (!why || is_over || first != watched) continue;
        is_over = true;
        const std::uint64_t call = operations.front().call;
        changed.notify_all();
        lock.unlock();
        // Moved: the thread that rethrows it is the last to hold it.
        return actions.on_failure(call, std::move(why));
      }
    }
  }

  std::exception_ptr find_failure(std::unique_lock<std::mutex>& lock) {
    if (!actions.find_error) return nullptr;
    const std::string text = operations.front().text;
    lock.unlock();
    std::exception_ptr error;
    if (const ExitLock::Shared held(background_calls()); held) error = actions.find_error(text);
    lock.lock();
    return error;
  }

  std::exception_ptr lateness(std::unique_lock<std::mutex>& lock) const {
    if (actions.find_lateness) {
      const std::uint64_t number = first + 1;
      const auto allowed = timeout.or_of_call(operations.front().timeout);
      const std::string_view source = timeout.source(operations.front().timeout);
      lock.unlock();
      std::exception_ptr error = actions.find_lateness(number, allowed, source);
      lock.lock();
      return error;
    }
    const Operation& late = operations.front();
    return std::make_exception_ptr(
        TimeoutError(fmt::format("{} did not finish within {}: {} ({})", late.text,
                                 duration_text(timeout.or_of_call(late.timeout)), actions.cause,
                                 timeout.source(late.timeout))));
  }
};

OperationDeadlines::OperationDeadlines(int device, GroupTimeout timeout, Actions actions)
    : state_(std::make_shared<State>(device, std::move(timeout), std::move(actions))) {
  start_background_thread("gantry-op-query", [state = state_] { state->ask(); }).detach();
  try {
    start_background_thread("gantry-op-due", [state = state_] { state->count(); }).detach();
  } catch (...) {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
    state_->changed.notify_all();
    throw;
  }
}

OperationDeadlines::~OperationDeadlines() {
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
}

void OperationDeadlines::begin(const Stream& stream, std::uint64_t call, std::string text,
                               std::chrono::milliseconds timeout) {
  State::Operation operation{.call = call, .text = std::move(text), .timeout = timeout};
  {
    const std::lock_guard lock(state_->mutex);
    for (NativeEvent* event : {&operation.begun, &operation.ended}) {
      if (state_->free_events.empty()) break;
      *event = state_->free_events.back();
      state_->free_events.pop_back();
    }
  }
  for (NativeEvent* event : {&operation.begun, &operation.ended}) {
    if (*event == nullptr) *event = driver().create_event(state_->device, {});
  }
  driver().record_event(operation.begun, stream.native());
  const std::lock_guard lock(state_->mutex);
  // The operation of a call that failed before end().
  if (!state_->operations.empty() && !state_->operations.back().is_enclosed) {
    const State::Operation& failed = state_->operations.back();
    state_->free_events.insert(state_->free_events.end(), {failed.begun, failed.ended});
    state_->operations.pop_back();
  }
  state_->operations.push_back(std::move(operation));
}

void OperationDeadlines::end(const Stream& stream) {
  NativeEvent ended = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    GANTRY_ASSERT(!state_->operations.empty() && !state_->operations.back().is_enclosed,
                  "an operation ends that did not begin");
    ended = state_->operations.back().ended;
  }
  driver().record_event(ended, stream.native());
  const std::lock_guard lock(state_->mutex);
  state_->operations.back().is_enclosed = true;
  state_->changed.notify_all();
}

}  // namespace gantry
