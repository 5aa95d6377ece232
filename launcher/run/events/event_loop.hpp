#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace gantry::launcher {

using Clock = std::chrono::steady_clock;

/// Waits for file descriptors and a deadline, in one thread, without polling.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Calls `handler` whenever `fd` can be read or has hung up. False for a file that is always
  /// ready, such as a regular one: it cannot be watched.
  bool watch_input(int fd, Handler handler);
  /// Calls `handler` whenever `fd` can be written or has hung up.
  bool watch_output(int fd, Handler handler);
  /// Stops watching `fd`; nothing happens if it is not watched.
  void forget(int fd);
  /// Waits until something happens or `deadline` passes, and calls the handlers.
  void wait(std::optional<Clock::time_point> deadline);

 private:
  bool watch(int fd, std::uint32_t events, Handler handler);

  int epoll_;
  std::map<int, std::shared_ptr<Handler>> handlers_;
};

}  // namespace gantry::launcher
