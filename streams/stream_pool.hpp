// The streams that gantry owns, and the numbers of all streams it has seen.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// The pooled streams of one device, and the identity of every stream handle on it.
///
/// Ids: 0 the default stream, 1…32 normal and 33…64 high priority pooled streams, 65 the one beside
/// the default stream, above that external ones in the order they were first seen. Streams are
/// never destroyed; an external one may be, by its owner, and if its handle is seen again with
/// another identity, it gets a new id. Thread safety: every member may be called from any thread.
class StreamPool {
 public:
  static constexpr int kStreamsPerPriority = 32;

  /// The id and the priority under which a handle is known.
  struct Identity {
    std::uint64_t id = 0;
    StreamPriority priority = StreamPriority::normal;
  };
  struct Entry {
    NativeStream native;
    Identity identity;
  };

  /// The pool of `device`, an index that was checked.
  [[nodiscard]] static StreamPool& of(int device);

  /// The next stream, round-robin. All are made with the first one: to make a stream may wait for
  /// all work of the device (on H200 the 35th and then every 43rd does), which may be a kernel that
  /// waits for what this thread does next. Throws: CudaError.
  [[nodiscard]] Entry next(StreamPriority priority);
  /// A private stream, for work that the default stream cannot do. Throws: CudaError.
  [[nodiscard]] Entry companion_of_default();
  /// The identity of any stream handle of this device. Throws: CudaError.
  [[nodiscard]] Identity identify(void* handle);
  /// The id of a handle that was seen. None while another thread makes or identifies streams.
  [[nodiscard]] std::optional<std::uint64_t> known_id(void* handle) noexcept;
  /// True for the id of a default or pooled stream, or of the one beside the default stream.
  [[nodiscard]] static bool owns(std::uint64_t id) { return id <= kCompanionOfDefault; }
  /// True for cudaStreamLegacy: another name of stream 0.
  [[nodiscard]] static bool is_legacy(const void* handle) {
    return reinterpret_cast<std::uintptr_t>(handle) == 1;
  }
  /// True for cudaStreamPerThread: one handle, but a stream for each thread.
  [[nodiscard]] static bool is_per_thread(const void* handle) {
    return reinterpret_cast<std::uintptr_t>(handle) == 2;
  }

 private:
  static constexpr std::uint64_t kCompanionOfDefault = 2 * kStreamsPerPriority + 1;

  struct Priority {
    std::atomic<std::uint32_t> turn{0};
    std::array<std::atomic<void*>, kStreamsPerPriority> handles{};
  };

  explicit StreamPool(int device) : device_(device) {}
  void fill();
  void make(std::atomic<void*>& slot, Identity identity, int priority);
  // Id of the stream `index` of a priority.
  static std::uint64_t id_of(StreamPriority priority, int index) {
    return static_cast<std::uint64_t>(priority) * kStreamsPerPriority +
           static_cast<std::uint64_t>(index) + 1;
  }
  void retire(const Identity& identity);

  const int device_;
  std::array<Priority, 2> priorities_;
  std::atomic<void*> companion_of_default_{nullptr};
  std::mutex mutex_;
  struct Known {
    Identity identity;
    std::uint64_t native = 0;  ///< the driver's number of an external stream
  };

  std::uint64_t next_external_id_ = kCompanionOfDefault + 1;
  std::unordered_map<void*, Known> identities_;
  std::unordered_map<std::uint64_t, Identity> per_thread_;  ///< by the driver's number
};

}  // namespace gantry
