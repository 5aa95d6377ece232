#include "collectives/nccl/comm.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/device/guard.hpp>

#include "collectives/nccl/check.hpp"

namespace gantry {

namespace {

// For the driver to say whether work is done, unless it is stuck. Usually microseconds.
constexpr auto kAnswerPatience = std::chrono::milliseconds(200);
// For a thread that enqueues.
constexpr auto kStuckPatience = std::chrono::seconds(1);
// Between looks for ranks that are gone while NCCL starts.
constexpr auto kStartLook = std::chrono::milliseconds(10);
// For an abort. It is not done before graphs that hold NCCL's kernels are gone.
constexpr auto kEndPatience = std::chrono::seconds(5);

// A thread that signals of the process do not interrupt. Throws: std::system_error.
template <class Run>
void start_thread(Run run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(run)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

struct NcclComm::State {
  explicit State(const Membership& member) : membership(member) {}
  ~State() {
    if (last != nullptr) driver().destroy_event(last);
    free_words();
  }

  // After all work of the device, which is not waited for where nothing is to be freed.
  void free_words() noexcept {
    if (words == nullptr) return;
    try {
      driver().deallocate(membership.device.index, std::exchange(words, nullptr));
    } catch (const std::exception& error) {
      logging::debug(fmt::format("ending NCCL: {}", error.what()));
    }
  }

  const Membership membership;
  TellLost tell_lost;
  ncclComm_t comm = nullptr;
  std::uint64_t* words = nullptr;
  NativeEvent last = nullptr;  // behind what was enqueued last
  std::timed_mutex enqueueing;
  std::atomic<std::uint64_t> newest{0};
  std::atomic<bool> aborted{false};

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
  constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
  state_->words = static_cast<std::uint64_t*>(driver().allocate(device, kBytes));
  if (state_->words == nullptr) {
    throw OutOfMemoryError(fmt::format("Failed allocating {} bytes beside NCCL", kBytes), {},
                           membership.device.str());
  }
  const Stream stream = Stream::from_pool(membership.device);
  driver().fill(state_->words, 0, kBytes, stream.native());
  stream.synchronize();
  ncclUniqueId id{};
  if (membership.rank == 0) {
    GANTRY_NCCL_CHECK(ncclGetUniqueId(&id), "making an NCCL id");
  }
  const std::string text(reinterpret_cast<const char*>(&id), sizeof id);
  const std::vector<std::string> all = bootstrap.all_gather(text);
  std::memcpy(&id, all.at(0).data(), sizeof id);
  start_thread([state = state_, id] { start(state, id); });
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

std::uint64_t* NcclComm::word(int i) const { return state_->words + i; }

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

void NcclComm::abort() noexcept {
  if (state_->aborted.exchange(true)) return;
  try {
    start_thread([state = state_] { end(state); });
  } catch (const std::exception& error) {
    logging::debug(fmt::format("ending NCCL: {}", error.what()));
    state_->aborted = false;  // The watchdog asks again.
  }
}

void NcclComm::require_intact() const {
  if (!state_->aborted) return;
  const Membership& me = state_->membership;
  throw PeerLostError(
      fmt::format("rank {} aborted; the communicator of {} ranks is unusable", me.rank, me.size),
      me.rank);
}

void NcclComm::await_abort() noexcept {
  if (!state_->aborted) return;
  std::unique_lock lock(state_->mutex);
  if (state_->changed.wait_for(lock, kEndPatience, [&] { return state_->has_ended; })) return;
  logging::warn("ending NCCL takes long: is there a graph that holds its operations?");
}

// Whether what was enqueued last is done; no while that cannot be known.
bool NcclComm::is_done(const std::shared_ptr<State>& state) {
  try {
    start_thread([state] {
      const bool is_done = driver().event_reached(state->last);
      const std::lock_guard lock(state->mutex);
      state->is_done = is_done;
      state->has_answered = true;
      state->changed.notify_all();
    });
  } catch (const std::exception&) {
    return false;
  }
  std::unique_lock lock(state->mutex);
  state->changed.wait_for(lock, kAnswerPatience, [&] { return state->has_answered; });
  return state->is_done;
}

void NcclComm::end(const std::shared_ptr<State>& state) {
  // Who does not hold the lock by then comes too late for it.
  const bool is_free = state->enqueueing.try_lock_for(kStuckPatience);
  if (is_free) state->enqueueing.unlock();
  // Before kernels end: who synchronizes with them must find it.
  if (!is_free || !is_done(state)) state->tell_lost(state->newest);
  // Memory is freed in between, which captures of other threads must survive.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (const ncclResult_t status = ncclCommAbort(state->comm); status != ncclSuccess) {
    logging::warn(fmt::format("ending NCCL: {}", ncclGetErrorString(status)));
  }
  if (is_free) {
    state->free_words();
  } else {
    state->words = nullptr;  // A launch that is stuck may still use them.
  }
  const std::lock_guard lock(state->mutex);
  state->has_ended = true;
  state->changed.notify_all();
}

}  // namespace gantry
