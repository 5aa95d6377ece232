// Threads of the library, beside the threads of the program.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace gantry {

/// A scope in which the calling thread takes no signal, and in which threads inherit that.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

/// Starts a thread that runs `body`. It takes no signals: they are for the program's own threads.
/// `name` has at most 15 characters; debuggers and `top -H` show it. Throws: std::system_error.
[[nodiscard]] std::thread start_background_thread(const char* name, std::function<void()> body);

/// True if the process has no thread but the calling one, the threads of start_background_thread()
/// and the threads of CUDA: nothing that the calling thread waits for can come from the program.
/// False also if that is unknown.
[[nodiscard]] bool is_only_thread_of_program();

/// Forgets a thread of the parent: a child of a fork can neither join nor detach it.
void abandon_after_fork(std::thread thread);

}  // namespace gantry
