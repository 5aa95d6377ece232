#include "device/sim/streams/sim_thread_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string_view>

#include <gantry/extend/unique_fd.hpp>

// Functions of ThreadSanitizer's runtime; null without it.
extern "C" {
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreSyncEnd(const char* file, int line);
}

namespace gantry::sim {

namespace {

void hide() {
  if (AnnotateIgnoreSyncBegin == nullptr) return;
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

void show() {
  if (AnnotateIgnoreSyncEnd == nullptr) return;
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

}  // namespace

pid_t this_thread_number() { return ::gettid(); }

ThreadState state_of(pid_t thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return ThreadState::ended;
  char text[256];
  const ssize_t bytes = ::read(file.get(), text, sizeof text);
  if (bytes <= 0) return ThreadState::ended;
  // "12 (name) S …"; the name may hold parentheses.
  const std::string_view stat(text, static_cast<std::size_t>(bytes));
  const std::size_t end = stat.rfind(')');
  const bool sleeps = end != std::string_view::npos && stat.substr(end + 1).starts_with(" S");
  return sleeps ? ThreadState::sleeps : ThreadState::computes;
}

std::chrono::nanoseconds processor_time(pid_t thread) {
  // The kernel's name of a thread's clock, as pthread_getcpuclockid makes it.
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6U);
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

UnseenByThreadSanitizer::UnseenByThreadSanitizer() { hide(); }
UnseenByThreadSanitizer::~UnseenByThreadSanitizer() { show(); }
SeenByThreadSanitizer::SeenByThreadSanitizer() { show(); }
SeenByThreadSanitizer::~SeenByThreadSanitizer() { hide(); }

}  // namespace gantry::sim
