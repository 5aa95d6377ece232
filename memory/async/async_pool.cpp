#include "memory/async/async_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>

#include "core/assert.hpp"
#include "device/idle_stream.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"

namespace gantry::memory {
namespace {

// How often a request that other threads disturbed is tried again.
constexpr int kRetries = 16;
// The driver's pools hold memory in pieces of this size.
constexpr std::size_t kPoolPiece = std::size_t{32} << 20;

std::size_t share_of(std::size_t total, double fraction) {
  return fraction >= 1 ? total : static_cast<std::size_t>(static_cast<double>(total) * fraction);
}

}  // namespace

AsyncPool::AsyncPool(int device, double fraction, std::function<void()> release_elsewhere,
                     std::function<std::size_t()> reserved_elsewhere)
    : device_(device),
      total_(device_properties(Device::cuda(device)).total_memory),
      release_elsewhere_(std::move(release_elsewhere)),
      reserved_elsewhere_(std::move(reserved_elsewhere)),
      limit_(share_of(total_, fraction)),
      frees_(PoolFrees::of(device)) {
  if (!driver().supports_memory_pools(device)) {
    throw NotSupported(
        fmt::format("GANTRY_ALLOC_CONF: backend:async: cuda:{} has no stream-ordered memory pools; "
                    "use backend:vmm or backend:native",
                    device),
        Device::cuda(device).str());
  }
  // A stream takes memory of the device. Once the blocks of this pool have it all, none can be made
  // to free them on.
  static_cast<void>(frees_.stream());
}

AsyncPool::~AsyncPool() {
  if (in_bad_fork()) return;
  free_deferred();
  try {
    wait_for_deferred();
  } catch (...) {  // the platform is shutting down
  }
}

HeapBlock& AsyncPool::make_block(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  const std::lock_guard lock(mutex_);
  slab_.reserve(1);
  HeapBlock& block = slab_.take();
  try {
    deferred_.add_use(block, clock, 0);
  } catch (...) {
    slab_.recycle(block);
    throw;
  }
  return block;
}

void AsyncPool::recycle(HeapBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  GANTRY_ASSERT(!block.is(BlockUse::live), "the descriptor of a live block is recycled");
  block.data = nullptr;
  block.uses.clear();
  block.captures.reset();
  slab_.recycle(block);
}

HeapBlock& AsyncPool::allocate(std::size_t bytes, const Stream& stream, std::size_t padding) {
  const std::size_t padded = add_saturated(bytes, padding);
  HeapBlock& block = make_block(stream);
  try {
    do {
      block.data = static_cast<std::byte*>(allocate_slow(padded, stream.native()));
    } while (block.data == nullptr && ask_program(padded));
  } catch (...) {
    recycle(block);
    throw;
  }
  if (block.data == nullptr) {
    recycle(block);
    throw_oom(padded);
  }
  const std::lock_guard lock(mutex_);
  const std::size_t size = block_bytes(padded);
  block.bytes = size;
  block.requested.store(bytes, std::memory_order_relaxed);
  block.change(BlockUse::unused, BlockUse::live);
  GANTRY_ASSERT(reserved_ >= size, "a request takes bytes that were not reserved");
  reserved_ -= size;
  transfers_.end();
  const bool small = is_small(size);
  increase(stats_.allocation, small, 1);
  increase(stats_.active, small, 1);
  increase(stats_.allocated_bytes, small, size);
  increase(stats_.active_bytes, small, size);
  increase(stats_.requested_bytes, small, bytes);
  return block;
}

// True if a function of the program freed memory, or asks for another attempt.
bool AsyncPool::ask_program(std::size_t bytes) const {
  const std::size_t most = std::min(total_, limit_.load(std::memory_order_relaxed));
  return block_bytes(bytes) <= most && run_oom_handlers(device_, bytes);
}

bool AsyncPool::reserve_budget(std::size_t bytes) {
  const std::size_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes > limit) return false;
  const std::lock_guard lock(mutex_);
  const std::size_t used = static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_;
  if (used > limit - bytes) return false;
  reserved_ += bytes;
  transfers_.begin();
  return true;
}

void AsyncPool::cancel_reservation(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  GANTRY_ASSERT(reserved_ >= bytes, "a request returns bytes that were not reserved");
  reserved_ -= bytes;
  transfers_.end();
  transfers_.complete();
}

// Allocates from the driver and reserves the budget for it. nullptr if there is no memory after all
// caches were released.
void* AsyncPool::allocate_slow(std::size_t bytes, NativeStream stream) {
  // Past the device's size nothing that is freed helps, and the driver need not see odd numbers.
  if (block_bytes(bytes) > total_) return nullptr;
  for (int retry = 0;; ++retry) {
    std::unique_lock lock(mutex_);
    const std::uint64_t before = transfers_.begin_attempt();
    {
      const Unlocked unlocked(lock);
      if (void* data = try_to_find(bytes, stream)) return data;
    }
    if (retry == kRetries || !transfers_.wait(lock, before)) return nullptr;
  }
}

void* AsyncPool::try_to_find(std::size_t bytes, NativeStream stream) {
  const std::size_t size = block_bytes(bytes);
  free_deferred();
  if (!reserve_budget(size) && !(wait_for_deferred() && reserve_budget(size))) return nullptr;
  try {
    await_frees(size);
    if (void* data = ask_driver(bytes, stream)) {
      keep_bound();
      return data;
    }
  } catch (...) {
    cancel_reservation(size);
    throw;
  }
  cancel_reservation(size);
  return nullptr;
}

// The legacy default stream takes no work while a stream that synchronizes with it is captured. So
// memory for it is allocated on another stream, for which the host waits.
void* AsyncPool::ask_driver_once(std::size_t bytes, NativeStream stream) const {
  if (may_look_at(stream)) return driver().allocate_async(stream, bytes);
  const NativeStream made = driver().create_stream(device_, 0);
  void* data = nullptr;
  try {
    data = driver().allocate_async(made, bytes);
    driver().synchronize_stream(made);
  } catch (...) {
    driver().destroy_stream(made);
    throw;
  }
  driver().destroy_stream(made);
  return data;
}

// The steps go from cheap to expensive, as those of a heap; see Note [Out-of-memory recovery].
void* AsyncPool::ask_driver(std::size_t bytes, NativeStream stream) {
  if (void* data = ask_driver_once(bytes, stream)) return data;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_alloc_retries;
    ++stats_.num_sync_all_streams;
  }
  // One of the callbacks trims the pool.
  if (MemoryPressureCallbacks::instance().run(device_, Waiting::forbidden)) {
    if (void* data = ask_driver_once(bytes, stream)) return data;
  }
  const BlockingIsNeeded needed;
  while (release_after_wait(HostWait::anyhow)) {
    if (void* data = ask_driver_once(bytes, stream)) return data;
  }
  release_elsewhere_();
  return ask_driver_once(bytes, stream);
}

bool AsyncPool::release_after_wait(HostWait wait) {
  const std::size_t before = driver().pool_memory(device_).reserved;
  free_deferred();
  bool is_more = wait == HostWait::anyhow && wait_for_deferred();
  is_more = frees_.wait_for_some(wait) || is_more;
  // Streams may have reached their frees before this call.
  driver().trim_pool(device_, 0);
  return is_more || driver().pool_memory(device_).reserved < before;
}

DriverRelease AsyncPool::release_for_driver() noexcept {
  try {
    const std::size_t before = driver().pool_memory(device_).reserved;
    free_deferred();
    frees_.look();
    driver().trim_pool(device_, 0);
    if (driver().pool_memory(device_).reserved < before) return DriverRelease::some;
    return frees_.has_pending() ? DriverRelease::none_yet : DriverRelease::none;
  } catch (const std::exception& error) {
    logging::debug(fmt::format("trimming the memory pool of cuda:{}: {}", device_, error.what()));
    return DriverRelease::none;
  }
}

void AsyncPool::await_frees(std::size_t bytes) {
  constexpr auto kMoment = std::chrono::milliseconds(1);
  constexpr auto kLook = std::chrono::microseconds(20);
  const std::size_t wanted = add_saturated(driver().pool_memory(device_).reserved, bytes);
  const NativeStream freeing = frees_.stream();
  {
    const std::lock_guard lock(mutex_);
    bound_.note_use(static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_);
    if (bound_.excess(wanted) == 0) return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kMoment;
  while (!is_idle(freeing) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
}

void AsyncPool::prepare_for_capture() noexcept {
  free_deferred();
  frees_.look();
}

// A failure to trim is no failure of the request.
void AsyncPool::keep_bound() {
  const std::size_t elsewhere = reserved_elsewhere_();
  std::size_t most = 0;
  {
    const std::lock_guard lock(mutex_);
    bound_.note_use(static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_);
    most = add_saturated(bound_.bytes(), kPoolPiece);
    most -= std::min(most, elsewhere);
  }
  try {
    if (driver().pool_memory(device_).reserved > most) driver().trim_pool(device_, most);
  } catch (const CudaError& error) {
    logging::debug(fmt::format("trimming the memory pool of cuda:{}: {}", device_, error.what()));
  }
}

void AsyncPool::throw_oom(std::size_t bytes) {
  OomReport report = report_of_driver(device_, block_bytes(bytes));
  report.reserved = signed_bytes(driver().pool_memory(device_).reserved);
  report.limit = signed_bytes(limit_.load(std::memory_order_relaxed));
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_ooms;
    report.allocated = stats_.allocated_bytes.all.current;
  }
  throw_out_of_memory(device_, report, false);
}

void AsyncPool::empty_cache() {
  const BlockingIsNeeded needed;
  {
    const std::lock_guard lock(mutex_);
    bound_.reset();
  }
  free_deferred();
  wait_for_deferred();
  frees_.wait_for_all();
  driver().trim_pool(device_, 0);
}

Stats AsyncPool::stats() {
  const NativePoolMemory memory = driver().pool_memory(device_);
  Stat reserved;
  reserved.current = signed_bytes(memory.reserved);
  reserved.peak = signed_bytes(std::max(memory.reserved_high, memory.reserved));
  reserved.allocated = reserved.current;
  const std::lock_guard lock(mutex_);
  Stats result = stats_;
  result.reserved_bytes.all = reserved;
  result.reserved_bytes.large_pool = reserved;
  return result;
}

void AsyncPool::reset_peak_stats() {
  driver().reset_pool_peaks(device_);
  const std::lock_guard lock(mutex_);
  reset_peaks(stats_);
}

void AsyncPool::set_fraction(double fraction) {
  limit_.store(share_of(total_, fraction), std::memory_order_relaxed);
}

}  // namespace gantry::memory
