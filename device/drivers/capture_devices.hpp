// Which devices take part in captures under way.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gantry {

// Note [Devices of a capture]
// A replay orders the current streams of all devices of its graph. The nodes do not tell these
// devices. CUDA names no device of a captured kernel. A kernel of one device may write the memory
// of another one, whose stream takes part only by waits. So devices are noted while the capture is
// under way. The drivers note a stream that waits for an event of the capture. Layers above note a
// stream that allocates or draws in it. A kernel that uses memory of a peer without such a wait
// notes nothing: eagerly, too, it is ordered with its own stream alone. It may even wait for work
// of the peer that follows.

/// The captures that Driver::begin_capture() began and that have not ended, on any device.
///
/// Captures that the program began by CUDA's own calls are not among them.
/// Thread safety: any thread.
class OpenCaptures {
 public:
  /// Adds the capture that is about to begin on a stream. Throws: std::bad_alloc.
  static void add(const void* origin);
  /// Removes the capture that began on a stream, if there is one.
  static void remove(const void* origin) noexcept;
  /// True while there is none. Costs one load.
  [[nodiscard]] static bool is_empty() noexcept {
    return count_.load(std::memory_order_acquire) == 0;
  }

 private:
  static std::atomic<std::size_t> count_;
};

/// The devices that take part in one capture: made when it begins, destroyed when it ends.
///
/// Thread safety: any thread may call note() and is_empty().
class CaptureDevices {
 public:
  static constexpr int kMost = 64;

  /// `capture` is the driver's number; `first` is the device where it begins.
  CaptureDevices(std::uint64_t capture, int first);
  ~CaptureDevices();
  CaptureDevices(const CaptureDevices&) = delete;
  CaptureDevices& operator=(const CaptureDevices&) = delete;

  /// The devices noted so far, ascending.
  [[nodiscard]] std::vector<int> all() const;

  /// True if there is an object for `capture`: gantry began it, and it has not ended.
  [[nodiscard]] static bool is_open(std::uint64_t capture) noexcept;
  /// Adds `device` to the devices of `capture`, if there is an object for it.
  static void note(std::uint64_t capture, int device) noexcept;
  /// True while there is no object. Costs one load.
  [[nodiscard]] static bool is_empty() noexcept {
    return open_.load(std::memory_order_relaxed) == 0;
  }

 private:
  static std::atomic<int> open_;

  const std::uint64_t capture_;
  std::bitset<kMost> devices_;
};

}  // namespace gantry
