#include "device/sim/streams/sim_stream.hpp"

#include <fmt/format.h>

#include <memory>

#include "core/processes/background_thread.hpp"
#include "device/drivers/stream_names.hpp"
#include "device/sim/streams/sim_schedule.hpp"

namespace gantry::sim {

namespace {

thread_local bool t_on_stream_thread = false;

// The schedule and stream of this thread's task, if there is a schedule.
thread_local Schedule* t_schedule = nullptr;
thread_local const SimStream* t_stream = nullptr;

}  // namespace

bool on_stream_thread() { return t_on_stream_thread; }

bool pause_task() { return t_schedule != nullptr && t_schedule->pause(*t_stream); }

SimStream::SimStream(int device, int number, Schedule* schedule)
    : device_(device), number_(number), schedule_(schedule) {}

SimStream::~SimStream() { stop(); }

std::string SimStream::name() const {
  if (number_ == 0) return fmt::format("the default stream of cuda:{}", device_);
  if (!has_stream_numbering()) return fmt::format("stream {} of cuda:{}", number_, device_);
  return name_of_stream({device_, const_cast<SimStream*>(this)});
}

std::uint64_t SimStream::submit(Task task, Options options) {
  start();
  if (options.waits != KernelWaits::never) held_by_peers_.fetch_add(1, std::memory_order_relaxed);
  const auto push = [&] { return queue_.push(new Item{std::move(task), options}); };
  if (schedule_ == nullptr) return push();
  return schedule_->submit(*this, options.after, options.waits, push);
}

void SimStream::start() {
  if (running_.load(std::memory_order_relaxed)) return;
  std::call_once(started_, [this] {
    const std::string name = fmt::format("sim {}/{}", device_, number_);
    thread_ = start_background_thread(name.c_str(), [this] { run(); });
    running_.store(true, std::memory_order_relaxed);
  });
}

void SimStream::run() {
  t_on_stream_thread = true;
  t_stream = this;
  for (std::uint64_t ticket = 1;; ++ticket) {
    std::unique_ptr<Item> item(queue_.pop());
    const bool last = item->last;
    const bool mark = item->options.mark;
    const bool waits_for_peers = item->options.waits != KernelWaits::never;
    if (schedule_ != nullptr && !last) t_schedule = schedule_->enter(*this) ? schedule_ : nullptr;
    if (!last) execute(*item, ticket);
    item.reset();  // the task's objects are destroyed before the task counts as done
    if (waits_for_peers) held_by_peers_.fetch_sub(1, std::memory_order_relaxed);
    if (mark) marks_[ticket % kMarks].store(ticket, std::memory_order_release);
    completed_.store(ticket, std::memory_order_release);
    full_fence();
    if (waiters_.load(std::memory_order_relaxed) != 0) futex_wake_all(&completed_);
    if (last) return;
    if (schedule_ != nullptr) schedule_->leave(*this);
  }
}

void SimStream::execute(Item& item, std::uint64_t ticket) {
  if (const TaskDependency& after = item.options.after; after.stream != nullptr) {
    after.stream->sleep_until(after.ticket);
    after.stream->acquire(after.ticket);
  }
  if (!item.options.always && (state_.load(std::memory_order_acquire) != kHealthy ||
                               ticket <= dropped_until_.load(std::memory_order_relaxed))) {
    return;
  }
  std::exception_ptr error;
  try {
    item.body();
  } catch (...) {
    error = std::current_exception();
  }
  // Behind the handler: the thread that reports the error is the last owner of the exception.
  if (error && state_.load(std::memory_order_acquire) == kHealthy) {
    error_ = std::move(error);
    failed_ticket_.store(ticket, std::memory_order_relaxed);
    state_.store(kFailed, std::memory_order_release);
  }
}

void SimStream::look(std::uint64_t ticket) const {
  if (schedule_ != nullptr) schedule_->look({this, ticket});
}

void SimStream::glance(std::uint64_t ticket) const {
  if (schedule_ != nullptr) schedule_->glance({this, ticket});
}

void SimStream::wait(std::uint64_t ticket) const {
  if (schedule_ != nullptr && !done(ticket)) schedule_->force({{{this, ticket}}});
  sleep_until(ticket);
}

void SimStream::sleep_until(std::uint64_t ticket) const {
  if (done(ticket)) return;
  waiters_.fetch_add(1, std::memory_order_relaxed);
  full_fence();
  for (;;) {
    const std::uint64_t seen = completed_.load(std::memory_order_relaxed);
    if (seen >= ticket) break;
    futex_wait_low(completed_, seen);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void SimStream::acquire(std::uint64_t ticket) const {
  const std::atomic<std::uint64_t>& mark = marks_[ticket % kMarks];
  while (mark.load(std::memory_order_acquire) < ticket) ::sched_yield();
}

void SimStream::drain() const {
  const std::uint64_t ticket = submitted();
  if (ticket == 0) return;
  wait(ticket);
  while (completed_.load(std::memory_order_acquire) < ticket) ::sched_yield();
}

bool SimStream::query() const {
  const std::uint64_t ticket = submitted();
  look(ticket);
  if (!done(ticket)) return false;
  return completed_.load(std::memory_order_acquire) >= ticket;
}

bool SimStream::is_idle() const {
  const std::uint64_t ticket = submitted();
  glance(ticket);
  return completed_.load(std::memory_order_acquire) >= ticket && !failed_before(UINT64_MAX);
}

std::exception_ptr SimStream::take_error(std::uint64_t before) {
  if (state_.load(std::memory_order_relaxed) != kFailed) return nullptr;
  if (failed_ticket_.load(std::memory_order_relaxed) > before) return nullptr;
  int expected = kFailed;
  if (!state_.compare_exchange_strong(expected, kReporting, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
    return nullptr;
  }
  std::exception_ptr error = std::move(error_);
  error_ = nullptr;
  dropped_until_.store(submitted(), std::memory_order_relaxed);
  state_.store(kHealthy, std::memory_order_release);
  return error;
}

void SimStream::rethrow_error_before(std::uint64_t ticket) {
  if (std::exception_ptr error = take_error(ticket)) std::rethrow_exception(std::move(error));
}

bool SimStream::failed_before(std::uint64_t ticket) const {
  return state_.load(std::memory_order_acquire) != kHealthy &&
         failed_ticket_.load(std::memory_order_relaxed) <= ticket;
}

void SimStream::clear_error() noexcept { (void)take_error(UINT64_MAX); }

void SimStream::stop() {
  if (!running_.load(std::memory_order_relaxed)) return;
  queue_.push(new Item{Task{}, Options{}, true});
  thread_.join();
  running_.store(false, std::memory_order_relaxed);
}

}  // namespace gantry::sim
