// All stream clocks of the process, by stream and by slot.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "streams/per_device.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

/// A growing table of pointers with lock-free reads. Thread safety: any thread; one writer.
class ClockTable {
 public:
  static constexpr std::uint64_t kPageSize = 64;
  static constexpr std::uint64_t kPages = 256;
  static constexpr std::uint64_t kSize = kPageSize * kPages;

  ClockTable() = default;
  ~ClockTable();
  ClockTable(const ClockTable&) = delete;
  ClockTable& operator=(const ClockTable&) = delete;

  /// nullptr if nothing was set there; `index` is below kSize.
  [[nodiscard]] StreamClock* get(std::uint64_t index) const {
    const Page* page = pages_[index / kPageSize].load(std::memory_order_acquire);
    return page == nullptr ? nullptr : (*page)[index % kPageSize].load(std::memory_order_acquire);
  }
  void set(std::uint64_t index, StreamClock* clock);

 private:
  using Page = std::array<std::atomic<StreamClock*>, kPageSize>;

  std::array<std::atomic<Page*>, kPages> pages_{};
};

/// Never destroyed. Thread safety: every member may be called from any thread.
class ClockRegistry {
 public:
  [[nodiscard]] static ClockRegistry& instance();

  /// The clock of a stream, nullptr if it has none yet. Lock-free for the first 16,384 ids of a
  /// device.
  [[nodiscard]] StreamClock* find(int device, std::uint64_t id) const {
    const Streams* streams = devices_.find(device);
    if (streams == nullptr) return nullptr;
    return id < ClockTable::kSize ? streams->by_id.get(id) : find_in_overflow(*streams, id);
  }
  /// The clock of a stream, made if there is none yet.
  [[nodiscard]] StreamClock& make(const Stream& stream);
  /// The clock of a slot that has an entry in a vector clock.
  [[nodiscard]] StreamClock* at(std::uint32_t slot) const { return slots_.get(slot); }
  [[nodiscard]] std::vector<StreamClock*> clocks_of(int device) const;
  /// Asserts that streams, slots and clocks agree, and what holds for each clock. Any thread may
  /// call meanwhile.
  void verify() const;

 private:
  struct Streams {
    ClockTable by_id;
    std::unordered_map<std::uint64_t, StreamClock*> overflow;  ///< ids past the table
    std::vector<StreamClock*> all;
  };

  ClockRegistry();
  [[nodiscard]] StreamClock* find_in_overflow(const Streams& streams, std::uint64_t id) const;

  mutable std::mutex mutex_;  ///< guards making, and what is not in tables
  std::uint32_t next_slot_ = 0;
  ClockTable slots_;
  PerDevice<Streams> devices_;
};

}  // namespace gantry
