// States of processes and threads, and processes whose first thread has ended.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace gantry::testing {

/// State of a thread, as in /proc/ID/stat; '?' if there is none. The first thread of a process has
/// the process's id.
inline char state_of(pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/stat");
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
