#include "compat/nccl/rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "compat/nccl/fallback.hpp"
#include "compat/nccl/watch.hpp"

// A handle outlives its rank: a program that uses it after its end is told so.
struct ncclComm {
  std::mutex mutex;  // guards what follows
  std::shared_ptr<gantry::nccl_api::Rank> rank;
  const char* ended_by = nullptr;
};

namespace gantry::nccl_api {

namespace {

// All handles of the process, so that any other address is none.
class Handles {
 public:
  void add(ncclComm_t handle) {
    const std::lock_guard lock(mutex_);
    all_.insert(handle);
  }
  [[nodiscard]] bool has(ncclComm_t handle) {
    thread_local ncclComm_t last = nullptr;  // calls of one thread mostly have one handle
    if (handle == last) return true;
    const std::lock_guard lock(mutex_);
    if (!all_.contains(handle)) return false;
    last = handle;
    return true;
  }
  // Never destroyed: the program may call at its exit.
  static Handles& all() {
    static auto* const handles = new Handles;
    return *handles;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<ncclComm_t> all_;
};

// The threads in which ranks leave their groups.
class Departures {
 public:
  void add(Communicator group, ncclComm_t theirs) {
    const std::lock_guard lock(mutex_);
    std::erase_if(threads_, [](const std::future<void>& one) {
      return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    threads_.push_back(std::async(std::launch::async, [group = std::move(group), theirs]() mutable {
      if (theirs != nullptr) theirs::leave(theirs, /*aborts=*/false);
      group = {};
    }));
  }
  void join() {
    std::vector<std::future<void>> threads;
    {
      const std::lock_guard lock(mutex_);
      threads.swap(threads_);
    }
    // Their futures wait for them.
  }
  // Never destroyed: the exit handler joins the threads.
  static Departures& all() {
    static Departures* const departures = [] {
      std::atexit([] { all().join(); });
      return new Departures;
    }();
    return *departures;
  }

 private:
  std::mutex mutex_;
  std::vector<std::future<void>> threads_;
};

}  // namespace

Communicator Rank::group() const {
  std::unique_lock lock(mutex_);
  if (making_.valid()) {
    const std::shared_future<void> making = making_;
    lock.unlock();
    making.get();
    lock.lock();
  }
  if (!has_left_) return group_;
  throw InvalidArgument("expected a communicator in use, but got one that was finalized");
}

bool Rank::blocks_host() const {
  (void)group();
  const std::lock_guard lock(mutex_);
  return blocks_host_;
}

ncclComm_t Rank::theirs() const {
  if (!has_fallback()) return nullptr;
  (void)group();
  const std::lock_guard lock(mutex_);
  return theirs_;
}

bool Rank::is_being_made() const {
  const std::lock_guard lock(mutex_);
  return making_.valid() && making_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::exception_ptr Rank::failure() const noexcept {
  try {
    if (is_being_made()) return nullptr;
    std::shared_future<void> making;
    Communicator group;
    {
      const std::lock_guard lock(mutex_);
      making = making_;
      group = group_;
    }
    if (making.valid()) making.get();
    if (std::exception_ptr failure = group.failure()) return failure;
    const std::lock_guard lock(mutex_);  // for as long as NCCL's communicator must live
    return theirs_ == nullptr ? nullptr : theirs::failure(theirs_);
  } catch (...) {
    return std::current_exception();
  }
}

void Rank::set_group(Communicator group) {
  ncclComm_t const theirs = hand_over(group);
  set_group(std::move(group), theirs);
}

void Rank::set_group(Communicator group, ncclComm_t theirs) {
  const std::lock_guard lock(mutex_);
  if (has_left_) {
    if (theirs != nullptr) theirs::leave(theirs, /*aborts=*/true);
    return;
  }
  blocks_host_ = group.transport() == "host";
  group_ = std::move(group);
  theirs_ = theirs;
}

void Rank::make_in_background(std::function<Communicator()> make) {
  std::packaged_task<void()> task(
      [self = shared_from_this(), make = std::move(make)] { self->set_group(make()); });
  const std::lock_guard lock(mutex_);
  making_ = task.get_future().share();
  std::thread(std::move(task)).detach();
}

void Rank::abort() noexcept {
  Communicator group;
  ncclComm_t theirs = nullptr;
  {
    const std::lock_guard lock(mutex_);
    group = group_;
    theirs = std::exchange(theirs_, nullptr);
  }
  group.abort();
  if (theirs != nullptr) theirs::leave(theirs, /*aborts=*/true);
}

void Rank::leave() noexcept {
  try {
    Communicator group;
    ncclComm_t theirs = nullptr;
    std::map<ncclWindow_t, OpenMemory> windows;
    {
      const std::lock_guard lock(mutex_);
      has_left_ = true;
      windows.swap(windows_);
      signals_ = {};
      group = std::exchange(group_, Communicator());
      theirs = std::exchange(theirs_, nullptr);
    }
    windows.clear();
    if (group.defined()) Departures::all().add(std::move(group), theirs);
  } catch (const std::exception& error) {
    logging::warn(std::string("failed to leave a communicator: ") + error.what());
  }
}

ncclRedOp_t Rank::add_operator(const PreMulSum& op) {
  const std::lock_guard lock(mutex_);
  // Programs make an operator for each call, so the numbers of destroyed ones come again.
  auto place = std::ranges::find(operators_, false, &std::optional<PreMulSum>::has_value);
  if (place == operators_.end()) place = operators_.emplace(place);
  *place = op;
  return static_cast<ncclRedOp_t>(ncclNumOps + (place - operators_.begin()));
}

void Rank::remove_operator(ncclRedOp_t op) {
  if (!find_operator(op)) {
    throw InvalidArgument("expected an operator that ncclRedOpCreatePreMulSum made, but got " +
                          std::to_string(static_cast<int>(op)));
  }
  const std::lock_guard lock(mutex_);
  operators_[static_cast<std::size_t>(op - ncclNumOps)].reset();
}

std::optional<PreMulSum> Rank::find_operator(ncclRedOp_t op) const {
  if (op >= 0 && op < ncclNumOps) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(op - ncclNumOps);
  if (op >= ncclNumOps && at < operators_.size() && operators_[at]) return operators_[at];
  throw InvalidArgument("expected an operator of this communicator, but got number " +
                        std::to_string(static_cast<int>(op)));
}

ncclWindow_t Rank::add_window(OpenMemory memory) {
  // The address is a name alone, which no other window of the process has.
  auto* const name = reinterpret_cast<ncclWindow_t>(new char);
  const std::lock_guard lock(mutex_);
  windows_.emplace(name, std::move(memory));
  return name;
}

OpenMemory Rank::take_window(ncclWindow_t window) {
  OpenMemory found = find_window(window);
  const std::lock_guard lock(mutex_);
  windows_.erase(window);
  delete reinterpret_cast<char*>(window);
  return found;
}

OpenMemory Rank::find_window(ncclWindow_t window) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = windows_.find(window); found != windows_.end()) return found->second;
  throw InvalidArgument("expected a window of this communicator");
}

void Rank::set_signals(Window signals) {
  const std::lock_guard lock(mutex_);
  signals_ = std::move(signals);
}

bool Rank::has_signals() const {
  const std::lock_guard lock(mutex_);
  return signals_.defined();
}

Window Rank::signals() const {
  const std::lock_guard lock(mutex_);
  if (signals_.defined()) return signals_;
  throw InvalidArgument("expected a communicator with a window that its ranks can reach");
}

int Rank::next_signal_to(int peer) { return next_channel(signals_to_, peer); }

int Rank::next_signal_from(int peer) { return next_channel(signals_from_, peer); }

int Rank::next_channel(std::vector<int>& turns, int peer) {
  if (peer < 0 || peer >= size) {
    throw InvalidArgument("expected a rank from 0 to " + std::to_string(size - 1) + ", but got " +
                          std::to_string(peer));
  }
  const std::lock_guard lock(mutex_);
  turns.resize(static_cast<std::size_t>(size));
  int& turn = turns[static_cast<std::size_t>(peer)];
  return std::exchange(turn, (turn + 1) % Window::kChannels);
}

std::shared_ptr<Rank> rank_of(ncclComm_t handle) {
  if (handle == nullptr) {
    throw InvalidArgument("expected a communicator, but got a null one");
  }
  if (!Handles::all().has(handle)) {
    throw InvalidArgument("expected a communicator, but got another address");
  }
  const std::lock_guard lock(handle->mutex);
  if (handle->rank) return handle->rank;
  throw InvalidArgument(std::string("expected a communicator in use, but ") + handle->ended_by +
                        " has ended it");
}

ncclComm_t make_handle(std::shared_ptr<Rank> rank) {
  watch(rank);
  auto* const handle = new ncclComm;
  handle->rank = std::move(rank);
  Handles::all().add(handle);
  return handle;
}

std::shared_ptr<Rank> end_handle(ncclComm_t handle, const char* function) {
  std::shared_ptr<Rank> rank = rank_of(handle);
  const std::lock_guard lock(handle->mutex);
  handle->rank.reset();
  handle->ended_by = function;
  return rank;
}

}  // namespace gantry::nccl_api
