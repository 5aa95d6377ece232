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
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/device/guard.hpp>

#include "collectives/nccl/check.hpp"
#include "core/background_thread.hpp"
#include "memory/source/driver_memory.hpp"

namespace gantry {

namespace {

// For the driver to say whether work is done, unless it is stuck. Usually microseconds.
constexpr auto kAnswerTimeout = std::chrono::milliseconds(200);
// For a thread that enqueues.
constexpr auto kStuckTimeout = std::chrono::seconds(1);
// Between looks for ranks that are gone while NCCL starts.
constexpr auto kStartLook = std::chrono::milliseconds(10);
// For an abort. It is not done before graphs that hold NCCL's kernels are gone.
constexpr auto kEndTimeout = std::chrono::seconds(5);

// What NCCL takes of a device by itself, about.
constexpr std::size_t kNcclBytes = std::size_t{1} << 30;

}  // namespace

struct NcclComm::State {
  explicit State(const Membership& member) : membership(member) {}
  ~State() {
    if (last != nullptr) driver().destroy_event(last);
  }

  std::uint64_t* word(int i) const { return static_cast<std::uint64_t*>(words.data()) + i; }

  const Membership membership;
  TellLost tell_lost;
  ncclComm_t comm = nullptr;
  memory::DriverMemory words;
  NativeEvent last = nullptr;  // behind what was enqueued last
  std::timed_mutex enqueueing;
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> aborted{false};

  std::mutex asking;       // guards `why`, and `comm` against the abort
  std::exception_ptr why;  // of the abort, if it is known

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::optional<ncclResult_t> started;
  std::string failure;        // of starting
  bool is_abandoned = false;  // before it has started
  bool is_done = false;       // as the driver said of `last`
  bool has_answered = false;
  bool has_ended = false;
};

NcclComm::NcclComm(const Membership& membership, Bootstrap& bootstrap, TellLost tell_lost,
                   const LookForLoss& look_for_loss)
    : state_(std::make_shared<State>(membership)) {
  prepare_nccl_environment();
  const int device = membership.device.index;
  state_->tell_lost = std::move(tell_lost);
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
    stream.synchronize();
    if (membership.rank == 0) GANTRY_NCCL_CHECK(ncclGetUniqueId(&id), "making an NCCL id");
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
  start_background_thread("gantry-nccl-new", [state = state_, id] { start(state, id); }).detach();
  std::unique_lock lock(state_->mutex);
  const auto has_started = [&] { return state_->started.has_value(); };
  try {
    while (!state_->changed.wait_for(lock, kStartLook, has_started)) {
      lock.unlock();
      look_for_loss();
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

// In a thread of its own.
void NcclComm::start(const std::shared_ptr<State>& state, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  ncclResult_t status = ncclSystemError;
  std::string failure;
  try {
    const Membership& me = state->membership;
    const DeviceGuard guard(me.device);
    status = ncclCommInitRank(&comm, me.size, id, me.rank);
    check_nccl(status, "ncclCommInitRank()", "starting NCCL");
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::lock_guard lock(state->mutex);
  if (state->is_abandoned) {
    if (comm != nullptr) (void)ncclCommAbort(comm);
    return;
  }
  state->comm = comm;
  state->failure = std::move(failure);
  state->started = status;
  state->changed.notify_all();
}

NcclComm::~NcclComm() {
  abort();  // Not ncclCommDestroy, which waits for peers that may be gone.
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
  try {
    start_background_thread("gantry-nccl-end", [state] { end(state); }).detach();
  } catch (const std::exception& error) {
    logging::debug(fmt::format("ending NCCL: {}", error.what()));
    state->aborted = false;  // The watchdog asks again.
  }
}

std::function<std::string()> NcclComm::error_finder() const {
  return [state = state_]() -> std::string {
    const std::lock_guard lock(state->asking);
    ncclResult_t error = ncclSuccess;
    if (state->aborted || ncclCommGetAsyncError(state->comm, &error) != ncclSuccess) return {};
    if (error == ncclSuccess || error == ncclInProgress) return {};
    const char* detail = ncclGetLastError(state->comm);
    return fmt::format("{}: {}", ncclGetErrorString(error), detail != nullptr ? detail : "");
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
  std::unique_lock lock(state_->mutex);
  if (state_->changed.wait_for(lock, kEndTimeout, [&] { return state_->has_ended; })) return;
  logging::warn("ending NCCL takes long: is there a graph that holds its operations?");
}

// Whether what was enqueued last is done; no while that cannot be known.
bool NcclComm::is_done(const std::shared_ptr<State>& state) {
  try {
    start_background_thread("gantry-nccl-ask", [state] {
      const bool is_done = driver().event_reached(state->last);
      const std::lock_guard lock(state->mutex);
      state->is_done = is_done;
      state->has_answered = true;
      state->changed.notify_all();
    }).detach();
  } catch (const std::exception&) {
    return false;
  }
  std::unique_lock lock(state->mutex);
  state->changed.wait_for(lock, kAnswerTimeout, [&] { return state->has_answered; });
  return state->is_done;
}

void NcclComm::end(const std::shared_ptr<State>& state) {
  // Who does not hold the lock by then comes too late for it.
  const bool is_free = state->enqueueing.try_lock_for(kStuckTimeout);
  if (is_free) state->enqueueing.unlock();
  // Before kernels end: who synchronizes with them must find it.
  if (!is_free || !is_done(state)) state->tell_lost(state->newest);
  // Memory is freed in between, which captures of other threads must survive.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  // Who asks NCCL something is done, and finds `aborted` from now on.
  { const std::lock_guard lock(state->asking); }
  if (const ncclResult_t status = ncclCommAbort(state->comm); status != ncclSuccess) {
    logging::warn(fmt::format("ending NCCL: {}", ncclGetErrorString(status)));
  }
  if (is_free) {
    state->words.reset();
  } else {
    (void)state->words.release();  // A launch that is stuck may still use them.
  }
  const std::lock_guard lock(state->mutex);
  state->has_ended = true;
  state->changed.notify_all();
}

}  // namespace gantry
