// One simulated device: capacity, streams and facts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_set>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/sim/streams/sim_stream.hpp"

namespace gantry {
namespace sim {

inline constexpr int kMaxDevices = 64;

/// Which device may touch which other one's memory. Thread safety: any thread.
class PeerTable {
 public:
  PeerTable();

  [[nodiscard]] bool allowed(int from, int to) const { return bit(allowed_, from, to); }
  [[nodiscard]] bool enabled(int from, int to) const {
    return from == to || bit(enabled_, from, to);
  }
  void enable(int from, int to) {
    enabled_[static_cast<std::size_t>(from)].fetch_or(mask(to), std::memory_order_relaxed);
  }
  /// For tests: gives the machine a pair of devices without a path, or the path back.
  void allow(int from, int to, bool value);

 private:
  using Rows = std::array<std::atomic<std::uint64_t>, kMaxDevices>;
  static std::uint64_t mask(int to) { return std::uint64_t{1} << static_cast<unsigned>(to); }
  static bool bit(const Rows& rows, int from, int to) {
    return (rows[static_cast<std::size_t>(from)].load(std::memory_order_relaxed) & mask(to)) != 0;
  }

  Rows allowed_{};
  Rows enabled_{};
};

/// Thread safety: every member may be called from any host thread.
class SimDevice {
 public:
  /// `schedule` is null, or of the machine.
  SimDevice(int index, int physical, std::size_t capacity, Schedule* schedule);

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] DeviceProperties properties() const;
  [[nodiscard]] FaultRecord* fault_record() { return &fault_; }
  /// Raises and clears the fault record, if a kernel wrote it.
  void raise_fault();

  /// Takes bytes from the capacity; false if fewer are free.
  [[nodiscard]] bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] NativeMemoryInfo memory_info() const;

  /// Made at its first use: of a machine's devices most processes use one.
  [[nodiscard]] SimStream& default_stream() {
    SimStream* const made = default_stream_.load(std::memory_order_acquire);
    return made != nullptr ? *made : make_default_stream();
  }
  [[nodiscard]] SimStream& create_stream();
  /// The calling thread's own stream, which ends with it.
  [[nodiscard]] SimStream& thread_stream();
  /// True if `stream` was made here and not destroyed; the pointer may be anything.
  [[nodiscard]] bool has_stream(const void* stream) const;
  /// Takes the stream out of use; its work still runs. False if it is none.
  bool retire_stream(SimStream* stream);

  /// Waits for all work, also of destroyed streams, and orders the caller after it.
  void drain() const;
  /// Rethrows the error of the first failed stream.
  void rethrow_error();
  /// Ends all threads; no work may follow.
  void stop();

 private:
  // A stream and the thread that has it: expired when that has ended.
  struct ThreadStream {
    std::weak_ptr<const char> thread;
    SimStream* stream;
  };

  [[nodiscard]] SimStream& make_default_stream();
  [[nodiscard]] std::vector<SimStream*> all_streams() const;
  /// An unused stream with an identity of its own; the lock is held.
  [[nodiscard]] SimStream& take_stream();

  const int index_;
  const int physical_;
  const std::size_t capacity_;
  Schedule* const schedule_;
  std::atomic<std::size_t> used_{0};
  FaultRecord fault_{};

  mutable std::shared_mutex mutex_;
  std::unique_ptr<SimStream> default_stream_owner_;
  std::atomic<SimStream*> default_stream_{nullptr};  // of default_stream_owner_
  std::vector<std::unique_ptr<SimStream>> streams_;
  std::vector<SimStream*> retired_;
  std::vector<ThreadStream> thread_streams_;
  std::unordered_set<const void*> live_;
};

}  // namespace sim
}  // namespace gantry
