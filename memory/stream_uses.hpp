// Streams other than its own that use a block, and the blocks that wait for them.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// The streams that a live block was recorded on; base of the allocators' block nodes.
struct StreamUses {
  std::vector<NativeStream> streams;
  int open_events = 0;  ///< events that a freed block still waits for

  /// Adds `stream` unless it is there.
  void add(NativeStream stream);
};

/// Freed blocks that may not be reused before other streams have done their work.
///
/// Every using stream has a queue of its own, so a stream that is late holds back its own blocks
/// only. Not thread-safe: the owner's lock protects it.
class PendingFrees {
 public:
  /// Marks the work submitted so far on each stream that uses `block`. True if the block waits now;
  /// it was used by no stream if false. Never throws: a stream that cannot be marked at the moment
  /// is marked at a later poll.
  bool defer(StreamUses& block) noexcept;

  /// Calls `release(StreamUses&)` for each block whose events all are reached. Asks the driver
  /// about the oldest event of each stream only. Throws: CudaError of a failed stream.
  template <class Release>
  void poll(Release&& release) {
    mark_unmarked();
    for (auto& [stream, queue] : queues_) {
      while (!queue.empty() && driver().query_event(queue.front().event)) {
        if (StreamUses* block = pop(stream, queue)) release(*block);
      }
    }
  }

  /// The events and streams that are waited for now, so that the caller can wait without a lock.
  struct Waits {
    std::vector<NativeEvent> events;
    std::vector<NativeStream> streams;

    [[nodiscard]] bool empty() const { return events.empty() && streams.empty(); }
    /// Blocks the host until all are reached.
    void synchronize() const;
  };
  [[nodiscard]] Waits waits() const;

  [[nodiscard]] bool empty() const { return queues_empty() && unmarked_.empty(); }

 private:
  struct Wait {
    NativeEvent event;
    StreamUses* block;
  };
  struct StreamOrder {
    bool operator()(const NativeStream& a, const NativeStream& b) const {
      return std::pair(a.device, a.handle) < std::pair(b.device, b.handle);
    }
  };
  using Queue = std::deque<Wait>;

  bool mark(StreamUses& block);
  void mark_unmarked();
  StreamUses* pop(const NativeStream& stream, Queue& queue);
  [[nodiscard]] bool queues_empty() const;

  std::map<NativeStream, Queue, StreamOrder> queues_;
  std::vector<StreamUses*> unmarked_;
};

}  // namespace gantry::memory
