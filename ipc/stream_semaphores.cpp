#include "ipc/stream_semaphores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "core/assert.hpp"
#include "device/drivers/fault_source.hpp"
#include "ipc/completion_queue.hpp"
#include "memory/driver_memory.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {
namespace {

// A 32-bit word in host memory, and the value at which waiting streams go on.
struct HostSemaphore {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;

  // Earlier writes of the caller are visible to the work behind the wait.
  void signal() const noexcept { std::atomic_ref(*word).store(value, std::memory_order_release); }
};

// The unused semaphores. They are allocated a page at a time and never freed. The values of a word
// only grow. A signalled word is therefore reusable while streams have not yet reached their wait:
// the next value satisfies that wait, too.
class HostSemaphorePool {
 public:
  // Returns a semaphore whose value is not reached. Throws: OutOfMemoryError, CudaError.
  [[nodiscard]] HostSemaphore acquire() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) add_page();
    HostSemaphore semaphore = unused_.back();
    unused_.pop_back();
    ++semaphore.value;
    GANTRY_ASSERT(*semaphore.word < semaphore.value, "a stream would not wait for a semaphore");
    return semaphore;
  }
  // Recycles a semaphore that was signalled, or that no stream waits for.
  void recycle(HostSemaphore semaphore) noexcept {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(unused_.size() < count_, "a semaphore is recycled that was not acquired");
    unused_.push_back(semaphore);  // has room
  }

 private:
  void add_page() {
    constexpr std::size_t kPageBytes = 4096;
    constexpr std::size_t kWords = kPageBytes / sizeof(std::uint32_t);
    unused_.reserve(count_ + kWords);
    void* page = allocate_pinned_from_driver(kPageBytes, "semaphores that streams wait for");
    std::memset(page, 0, kPageBytes);
    count_ += kWords;
    for (std::size_t i = 0; i < kWords; ++i) {
      unused_.push_back({static_cast<std::uint32_t*>(page) + i, 0});
    }
  }

  std::mutex mutex_;
  std::size_t count_ = 0;  // semaphores of all pages
  std::vector<HostSemaphore> unused_;
};

HostSemaphorePool& semaphore_pool() {
  static auto& pool = *new HostSemaphorePool();
  return pool;
}

// The exporters that a device lost: they ended before their pending writes to imported memory
// completed. The device's next synchronizing call throws PeerLostError, once for each process.
class PeerFaults final : public FaultSource {
 public:
  [[nodiscard]] static PeerFaults& of(int device) {
    static auto& faults = *new PerDevice<PeerFaults>();
    return faults.get(device, [](int index) {
      auto made = std::make_unique<PeerFaults>(index);
      add_fault_source(*made);
      return made.release();  // registered until the process ends
    });
  }

  explicit PeerFaults(int device) : device_(device) {}

  void add(const ProcessStamp& process) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(unraised_, process) != unraised_.end()) return;
    unraised_.push_back(process);
    has_fault_.store(true, std::memory_order_release);
  }

  [[nodiscard]] int fault_device() const noexcept override { return device_; }
  [[nodiscard]] bool has_fault() const noexcept override {
    return has_fault_.load(std::memory_order_acquire);
  }
  void raise_fault() override {
    ProcessStamp process;
    {
      const std::lock_guard lock(mutex_);
      if (unraised_.empty()) return;
      process = unraised_.front();
      unraised_.pop_front();
      has_fault_.store(!unraised_.empty(), std::memory_order_release);
    }
    throw PeerLostError(fmt::format("import_ipc: exporter process {} died before its pending "
                                    "writes completed; contents are undefined",
                                    process.pid),
                        -1, Device::cuda(device_).str());
  }

 private:
  const int device_;
  std::atomic<bool> has_fault_{false};
  std::mutex mutex_;
  std::deque<ProcessStamp> unraised_;  // oldest first
};

// One wait of a stream. The queue performs it after it has polled all waits, so a process that
// several streams wait for is added to the faults once.
class SemaphoreWait final : public Completion {
 public:
  SemaphoreWait(std::shared_ptr<IpcPeer> peer, NativeEvent event, int device)
      : peer_(std::move(peer)),
        event_(event),
        faults_(PeerFaults::of(device)),
        semaphore_(semaphore_pool().acquire()) {}
  ~SemaphoreWait() override { semaphore_pool().recycle(semaphore_); }

  void enqueue(NativeStream stream) const {
    driver().wait_for_word(stream, semaphore_.word, semaphore_.value);
  }

  bool is_complete() override {
    // The end is read first: an event that is incomplete afterwards stays incomplete.
    const bool has_ended = peer_->has_ended();
    if (driver().event_reached(event_)) return true;
    if (has_ended) faults_.add(peer_->process());
    return has_ended;
  }
  void perform() noexcept override {
    GANTRY_ASSERT(peer_ != nullptr, "a wait is ended twice");
    // The peer is released first: after the signal, this thread calls no driver on its behalf.
    peer_.reset();
    semaphore_.signal();
  }

 private:
  std::shared_ptr<IpcPeer> peer_;  // keeps the event open
  const NativeEvent event_;
  PeerFaults& faults_;
  const HostSemaphore semaphore_;
};

}  // namespace

void wait_with_semaphore(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event) {
  static auto& queue = *new CompletionQueue("gantry-ipc-wait", std::chrono::milliseconds(1));
  queue.start();
  // Every call that can fail comes before the stream's wait: nothing else would end that wait.
  auto wait = std::make_unique<SemaphoreWait>(std::move(peer), event, stream.device);
  const SemaphoreWait& added = *wait;
  CompletionQueue::Entries entries;
  entries.push_back(std::move(wait));
  added.enqueue(stream);
  queue.add(std::move(entries));
}

}  // namespace gantry::memory
