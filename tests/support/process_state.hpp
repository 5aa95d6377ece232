// Processes whose first thread has ended, and what /proc tells of them.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace gantry::testing {

/// State of the first thread of a process, as in /proc/PID/stat; '?' if there is no such process.
inline char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? '?' : text.at(name_end + 2);
}

/// Ends this thread alone; `body` runs in another one. It is as pthread_exit(), which would unwind
/// the stack. Called by the first thread, it makes the process a zombie that runs.
template <class Body>
[[noreturn]] void continue_in_another_thread(Body body) {
  std::thread(std::move(body)).detach();
  syscall(SYS_exit, 0);
  std::abort();
}

}  // namespace gantry::testing
