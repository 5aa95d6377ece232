// Threads that compute tags beside the thread that moves the messages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>

#include "core/authentication/message_tags.hpp"

namespace gantry {

/// Adds the bytes of long messages to their tags, in order, on a thread of its own.
///
/// The thread starts with the first bytes. Where the process has few CPUs, or may start no thread,
/// the caller adds the bytes itself. Thread safety: one caller at a time. In a child of a fork only
/// the destructor may be called.
class TagThread {
 public:
  enum class Start : std::uint8_t { with_spare_cpus, always };

  explicit TagThread(Start start = Start::with_spare_cpus);
  ~TagThread();
  TagThread(const TagThread&) = delete;
  TagThread& operator=(const TagThread&) = delete;

  /// False if the caller adds all bytes itself, because the process has few CPUs.
  [[nodiscard]] bool is_useful() const { return is_useful_; }
  /// As tags.add(bytes), some time before has_added(result) is true or drain() returns. Until then
  /// `tags` and `bytes` exist and stay as they are. Each result is at least the one before.
  std::uint64_t add(MessageTags& tags, std::span<const std::byte> bytes);
  /// True if the bytes of the add() with this result, and of all before it, are added. Throws: the
  /// first error of an add().
  [[nodiscard]] bool has_added(std::uint64_t added);
  /// True if all bytes are added, or if that failed.
  [[nodiscard]] bool is_idle() const noexcept;
  /// Blocks until all bytes are added, or that failed. has_added() throws the error.
  void drain() noexcept;

 private:
  struct State;

  /// True if the thread runs; starts it if it may.
  bool is_running();

  const pid_t owner_;
  const bool is_useful_;
  std::uint64_t added_ = 0;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

/// A thread for each direction: tags take about as long as the messages, so one would be late.
struct TagThreads {
  explicit TagThreads(TagThread::Start start = TagThread::Start::with_spare_cpus)
      : outgoing(start), incoming(start) {}

  [[nodiscard]] bool is_useful() const { return outgoing.is_useful(); }
  /// Returns when both are idle, or after some microseconds: messages may move on before.
  void wait_briefly() const noexcept;
  /// As TagThread::drain(), of both.
  void drain() noexcept {
    outgoing.drain();
    incoming.drain();
  }

  TagThread outgoing;
  TagThread incoming;
};

}  // namespace gantry
