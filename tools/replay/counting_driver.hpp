// A driver that counts its calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <gantry/extend/forwarding_driver.hpp>

namespace gantry::replay {

/// Takes the place of the process's driver while it lives, counts the calls and the device memory
/// that is held through them, and passes every call on.
///
/// Make and destroy it only while no device work is in flight. Thread safety: all members.
class CountingDriver : public ForwardingDriver {
 public:
  CountingDriver() : ForwardingDriver(*exchange_driver(this)) {}
  ~CountingDriver() override { exchange_driver(&wrapped()); }

  /// How many calls were made so far.
  [[nodiscard]] std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  /// Bytes of device memory that allocate and create_chunk gave and nobody returned.
  [[nodiscard]] std::uint64_t held_bytes() const { return held_.load(std::memory_order_relaxed); }
  /// The largest held_bytes() since the last reset_peak.
  [[nodiscard]] std::uint64_t peak_held_bytes() const {
    return peak_.load(std::memory_order_relaxed);
  }
  void reset_peak() { peak_.store(held_bytes(), std::memory_order_relaxed); }

  void* allocate(int device, std::size_t bytes) override {
    void* data = ForwardingDriver::allocate(device, bytes);
    if (data != nullptr) hold(reinterpret_cast<std::uintptr_t>(data), bytes, allocations_);
    return data;
  }
  void deallocate(int device, void* data) override {
    ForwardingDriver::deallocate(device, data);
    drop(reinterpret_cast<std::uintptr_t>(data), allocations_);
  }
  NativeChunk create_chunk(int device, std::size_t bytes) override {
    const NativeChunk chunk = ForwardingDriver::create_chunk(device, bytes);
    if (chunk != NativeChunk::none) hold(static_cast<std::uint64_t>(chunk), bytes, chunks_);
    return chunk;
  }
  void release_chunk(NativeChunk chunk) override {
    ForwardingDriver::release_chunk(chunk);
    drop(static_cast<std::uint64_t>(chunk), chunks_);
  }

 protected:
  void before_call(const char*) override { count(); }
  void before_noexcept_call(const char*) noexcept override { count(); }

 private:
  using Sizes = std::unordered_map<std::uint64_t, std::uint64_t>;

  void count() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }
  void hold(std::uint64_t key, std::uint64_t bytes, Sizes& sizes) {
    const std::lock_guard lock(mutex_);
    sizes[key] = bytes;
    const std::uint64_t held = held_.load(std::memory_order_relaxed) + bytes;
    held_.store(held, std::memory_order_relaxed);
    if (held > peak_.load(std::memory_order_relaxed)) peak_.store(held, std::memory_order_relaxed);
  }
  void drop(std::uint64_t key, Sizes& sizes) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes.find(key);
    if (found == sizes.end()) return;  // from before this driver
    held_.store(held_.load(std::memory_order_relaxed) - found->second, std::memory_order_relaxed);
    sizes.erase(found);
  }

  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> peak_{0};
  std::mutex mutex_;
  Sizes allocations_;
  Sizes chunks_;
};

}  // namespace gantry::replay
