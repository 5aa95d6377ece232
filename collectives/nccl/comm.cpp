#include "collectives/nccl/comm.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/locked_words.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/nccl/nccl_threads.hpp"
#include "collectives/nccl/relaxed_captures.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "memory/driver_memory.hpp"

namespace gantry {

namespace {

// The timeout of a driver query, which usually takes microseconds.
constexpr auto kAnswerTimeout = std::chrono::milliseconds(200);
// The timeout for a thread that enqueues.
constexpr auto kStuckTimeout = std::chrono::seconds(1);
// Between two checks for lost ranks while NCCL starts.
constexpr auto kStartPollPeriod = std::chrono::milliseconds(10);
// The timeout of an abort, which ends only after graphs with NCCL kernels are destroyed.
constexpr auto kEndTimeout = std::chrono::seconds(5);
// Between two attempts to take a lock.
constexpr auto kLockPollPeriod = std::chrono::milliseconds(1);

// True with the lock taken; false if it is not free within `timeout`. ThreadSanitizer does not see
// the locks that std::timed_mutex::try_lock_for() takes.
bool lock_within(std::mutex& mutex, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!mutex.try_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLockPollPeriod);
  }
  return true;
}

}  // namespace

struct NcclComm::State {
  explicit State(const Membership& member) : membership(member) {}
  ~State() {
    if (last != nullptr) driver().destroy_event(last);
  }

  std::uint64_t* word(int i) const { return static_cast<std::uint64_t*>(words.data()) + i; }

  const Membership membership;
  ReportLoss report_loss;
  ncclComm_t comm = nullptr;
  memory::DriverMemory words;
  NativeEvent last = nullptr;  // after the last enqueued work
  std::mutex enqueueing;
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> aborted{false};

  std::mutex asking;       // guards `why`, and `comm` against the abort
  std::exception_ptr why;  // of the abort, if it is known

  std::mutex mutex;  // guards the following members
  std::condition_variable changed;
  std::optional<ncclResult_t> started;
  std::string failure;        // of starting
  bool is_abandoned = false;  // before it has started
  bool is_done = false;       // the driver's result for `last`
  bool has_answered = false;
  bool has_ended = false;
};

NcclComm::NcclComm(const Membership& membership, Bootstrap& bootstrap, ReportLoss report_loss,
                   const CheckPeers& check_peers)
    : state_(std::make_shared<State>(membership)) {
  prepare_nccl_environment();
  const int device = membership.device.index;
  state_->report_loss = std::move(report_loss);
  state_->last = driver().create_event(device, {});
  ncclUniqueId id{};
  std::string word;
  std::exception_ptr failure;
  try {
    constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
    memory::make_room(device, kNcclBytes);
    state_->words = memory::DriverMemory(device, kBytes, "words beside NCCL");
    const Stream stream = Stream::from_pool(membership.device);
    driver().fill(state_->words.data(), 0, kBytes, stream.native());
    const BlockingIsNeeded needed;
    stream.synchronize();
    if (membership.rank == 0)
      check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId", "making an NCCL id");
    word.assign(reinterpret_cast<const char*>(&id), sizeof id);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    word = error.what();
  }
  // A failure on one rank must reach the others: they wait in the exchange.
  const std::vector<std::string> all = bootstrap.all_gather((failure ? "-" : "+") + word);
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].substr(0, 1) == "+") continue;
    throw Error(fmt::format("rank {} failed to start NCCL: {}", rank, all[rank].substr(1)));
  }
  std::memcpy(&id, all.at(0).data() + 1, sizeof id);
  if (!NcclThreads::instance().start("gantry-nccl-new", [state = state_, id] { start(state, id); }))
    throw Error("starting NCCL: failed to start a thread");
  std::unique_lock lock(state_->mutex);
  const auto has_started = [&] { return state_->started.has_value(); };
  try {
    while (!state_->changed.wait_for(lock, kStartPollPeriod, has_started)) {
      lock.unlock();
      check_peers();
      lock.lock();
    }
  } catch (...) {
    lock.lock();
    if (!has_started()) {
      state_->is_abandoned = true;
      throw;
    }
  }
  if (*state_->started != ncclSuccess) throw NcclError(state_->failure);
}

// Runs in its own thread.
void NcclComm::start(const std::shared_ptr<State>& state, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  ncclResult_t status = ncclSystemError;
  std::string failure;
  try {
    const Membership& me = state->membership;
    const DeviceGuard guard(me.device);
    status = nccl().comm_init_rank(&comm, me.size, id, me.rank);
    check_nccl(status, "ncclCommInitRank()", "starting NCCL");
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::lock_guard lock(state->mutex);
  if (state->is_abandoned) {
    if (comm != nullptr) (void)nccl().comm_abort(comm);
    return;
  }
  state->comm = comm;
  state->failure = std::move(failure);
  state->started = status;
  state->changed.notify_all();
}

NcclComm::~NcclComm() {
  abort();  // ncclCommDestroy would wait for peers that may be dead.
  await_abort();
}

std::uint64_t* NcclComm::word(int i) const { return state_->word(i); }

void NcclComm::enqueue(std::uint64_t call, const Stream& stream,
                       const std::function<void(ncclComm_t)>& submit) {
  State& state = *state_;
  const std::lock_guard lock(state.enqueueing);
  require_intact();
  state.newest = call;
  submit(state.comm);
  if (driver().is_capturing(stream.native())) return;
  driver().record_event(state.last, stream.native());
}

bool NcclComm::is_waiting() const { return !driver().event_reached(state_->last); }

void NcclComm::abort() noexcept { abort(state_); }

void NcclComm::abort(const std::shared_ptr<State>& state) noexcept {
  if (state->aborted.exchange(true)) return;
  if (!NcclThreads::instance().start("gantry-nccl-end", [state] { end(state); })) {
    state->aborted = false;  // The watchdog retries.
  }
}

std::function<std::string()> NcclComm::error_finder() const {
  return [state = state_]() -> std::string {
    const std::lock_guard lock(state->asking);
    ncclResult_t error = ncclSuccess;
    if (state->aborted || nccl().comm_get_async_error(state->comm, &error) != ncclSuccess)
      return {};
    if (error == ncclSuccess || error == ncclInProgress) return {};
    const char* detail = nccl().get_last_error(state->comm);
    return fmt::format("{}: {}", nccl().get_error_string(error), detail != nullptr ? detail : "");
  };
}

std::function<void(std::uint64_t, std::exception_ptr)> NcclComm::failer() const {
  return [state = state_](std::uint64_t, std::exception_ptr why) {
    {
      const std::lock_guard lock(state->asking);
      if (!state->why) state->why = std::move(why);
    }
    abort(state);
  };
}

void NcclComm::require_intact() const {
  if (!state_->aborted) return;
  {
    const std::lock_guard lock(state_->asking);
    if (state_->why) std::rethrow_exception(state_->why);
  }
  const Membership& me = state_->membership;
  throw PeerLostError(
      fmt::format("rank {} aborted; the communicator of {} ranks is unusable", me.rank, me.size),
      me.rank);
}

void NcclComm::await_abort() noexcept {
  if (!state_->aborted) return;
  // NCCL frees memory, which waits for kernels of other ranks, and they may wait for this thread.
  if (LockedWords::instance().has_several_ranks()) return;
  std::unique_lock lock(state_->mutex);
  if (state_->changed.wait_for(lock, kEndTimeout, [&] { return state_->has_ended; })) return;
  logging::warn("ending NCCL takes long: is there a graph that holds its operations?");
}

// True if the last enqueued work is done; false while that is unknown.
bool NcclComm::is_done(const std::shared_ptr<State>& state) {
  const bool is_asked = NcclThreads::instance().start("gantry-nccl-ask", [state] {
    const bool is_done = driver().event_reached(state->last);
    const std::lock_guard lock(state->mutex);
    state->is_done = is_done;
    state->has_answered = true;
    state->changed.notify_all();
  });
  if (!is_asked) return false;
  std::unique_lock lock(state->mutex);
  state->changed.wait_for(lock, kAnswerTimeout, [&] { return state->has_answered; });
  return state->is_done;
}

void NcclComm::end(const std::shared_ptr<State>& state) {
  // A thread that takes the lock after this finds `aborted`.
  const bool is_free = lock_within(state->enqueueing, kStuckTimeout);
  if (is_free) state->enqueueing.unlock();
  // Before kernels end, since threads that synchronize with them must find the loss.
  if (!is_free || !is_done(state)) state->report_loss(state->newest);
  // The abort frees memory, which must not invalidate captures of other threads.
  if (platform() == Platform::cuda) relax_captures();
  // Threads that query NCCL are done; later ones find `aborted`.
  { const std::lock_guard lock(state->asking); }
  if (const ncclResult_t status = nccl().comm_abort(state->comm); status != ncclSuccess) {
    logging::warn(fmt::format("ending NCCL: {}", nccl().get_error_string(status)));
  }
  if (is_free) {
    state->words.reset();
  } else {
    (void)state->words.release();  // A blocked launch may still use them.
  }
  const std::lock_guard lock(state->mutex);
  state->has_ended = true;
  state->changed.notify_all();
}

}  // namespace gantry
