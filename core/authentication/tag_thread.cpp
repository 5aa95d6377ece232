#include "core/authentication/tag_thread.hpp"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "core/assert.hpp"
#include "core/cpu_pause.hpp"
#include "core/processes/background_thread.hpp"

namespace gantry {
namespace {

bool has_spare_cpus() noexcept {
  constexpr int kFewest = 4;
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) >= kFewest;
}

// Longer than most waits and than waking a thread.
constexpr std::chrono::microseconds kSpin{50};
// Shorter than a rank sends what the socket of its peer takes.
constexpr std::chrono::microseconds kBriefSpin{5};

// Returns once `is_true()`, or after `longest`.
template <class Condition>
void spin_until(Condition is_true, std::chrono::microseconds longest = kSpin) {
  constexpr int kPollsPerCheck = 20;
  const auto end = std::chrono::steady_clock::now() + longest;
  do {
    for (int i = 0; i < kPollsPerCheck; ++i) {
      if (is_true()) return;
      cpu_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
}

struct Piece {
  MessageTags* tags;
  std::span<const std::byte> bytes;
};

}  // namespace

struct TagThread::State {
  void run();
  void throw_error();

  std::atomic<std::uint64_t> queued{0};  // pieces so far
  std::atomic<std::uint64_t> done{0};    // of them
  std::mutex mutex;                      // guards the members below
  std::condition_variable changed;
  std::deque<Piece> pieces;
  std::exception_ptr error;
  bool stops = false;
};

TagThread::TagThread(Start start)
    : owner_(getpid()),
      is_useful_(start == Start::always || has_spare_cpus()),
      state_(std::make_unique<State>()) {}

TagThread::~TagThread() {
  if (getpid() != owner_) {
    abandon_after_fork(std::move(thread_));
    // The parent's thread may wait for the condition, which could not be destroyed here then.
    static_cast<void>(state_.release());
    return;
  }
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stops = true;
  }
  state_->changed.notify_one();
  thread_.join();
}

bool TagThread::is_running() {
  if (thread_.joinable() || !is_useful_) return thread_.joinable();
  try {
    thread_ = start_background_thread("gantry-tags", [state = state_.get()] { state->run(); });
  } catch (const std::system_error&) {  // the caller computes
  }
  return thread_.joinable();
}

std::uint64_t TagThread::add(MessageTags& tags, std::span<const std::byte> bytes) {
  if (!is_running()) {
    tags.add(bytes);
    return added_;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->pieces.push_back({&tags, bytes});
    state_->queued.fetch_add(1, std::memory_order_relaxed);
  }
  state_->changed.notify_one();
  return ++added_;
}

bool TagThread::has_added(std::uint64_t added) {
  if (state_->done.load(std::memory_order_acquire) < added) return false;
  state_->throw_error();
  return true;
}

bool TagThread::is_idle() const noexcept {
  return state_->done.load(std::memory_order_relaxed) == added_;
}

void TagThread::drain() noexcept {
  std::atomic<std::uint64_t>& pieces = state_->done;
  spin_until([this] { return is_idle(); });
  for (auto done = pieces.load(std::memory_order_acquire); done != added_;
       done = pieces.load(std::memory_order_acquire)) {
    pieces.wait(done, std::memory_order_acquire);
  }
}

void TagThreads::wait_briefly() const noexcept {
  const auto are_idle = [this] { return outgoing.is_idle() && incoming.is_idle(); };
  spin_until(are_idle, kBriefSpin);
  if (!are_idle()) std::this_thread::yield();  // they may need this CPU
}

void TagThread::State::throw_error() {
  const std::lock_guard lock(mutex);
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

void TagThread::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [this] { return stops || !pieces.empty(); });
    if (pieces.empty()) return;
    const Piece piece = pieces.front();
    pieces.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      piece.tags->add(piece.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure && !error) error = failure;
    const std::uint64_t now_done = done.fetch_add(1, std::memory_order_release) + 1;
    GANTRY_ASSERT(now_done + pieces.size() == queued.load(std::memory_order_relaxed),
                  "a piece of a message is lost");
    done.notify_one();
    if (!pieces.empty()) continue;
    lock.unlock();  // the next bytes of a long message come soon
    spin_until([&] { return queued.load(std::memory_order_relaxed) > now_done; });
    lock.lock();
  }
}

}  // namespace gantry
