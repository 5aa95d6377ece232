#include "launcher/run/events/event_loop.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace gantry::launcher {

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
}

EventLoop::~EventLoop() { close(epoll_); }

bool EventLoop::watch_input(int fd, Handler handler) {
  return watch(fd, EPOLLIN, std::move(handler));
}

bool EventLoop::watch_output(int fd, Handler handler) {
  return watch(fd, EPOLLOUT, std::move(handler));
}

bool EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  const int operation = handlers_.contains(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_, operation, fd, &event) != 0) {
    if (errno == EPERM) return false;
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  return true;
}

void EventLoop::forget(int fd) {
  if (handlers_.erase(fd) != 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::wait(std::optional<Clock::time_point> deadline) {
  int timeout_ms = -1;
  if (deadline) {
    // Rounded up: waking a moment early would only mean waking twice.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000'000));
  }
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto found = handlers_.find(events[i].data.fd);
    if (found == handlers_.end()) continue;  // forgotten by an earlier handler
    const std::shared_ptr<Handler> handler = found->second;
    (*handler)();
  }
}

}  // namespace gantry::launcher
