// Threads for calls of NCCL that may block.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

namespace gantry {

// Functions that call NCCL and may block, each in a thread of its own. One that blocks delays no
// other: an NCCL kernel that it waits for may need the end of another communicator.
//
// The process waits for them before it exits, because they must not run concurrently with NCCL's
// and CUDA's shutdown: Note [Background threads at exit]. The exit handler is registered behind
// NCCL's handlers, so it has a count of its own beside the lock of the driver. A forked child has
// none of its parent's threads.
//
// Thread safety: every member may be called from any thread.
class NcclThreads {
 public:
  // Never destroyed: threads may use it until the process ends.
  static NcclThreads& instance();
  NcclThreads(const NcclThreads&) = delete;
  NcclThreads& operator=(const NcclThreads&) = delete;

  // Runs `body` in a thread with this name, at most 15 characters. Logs what it throws.
  // Returns false if there is no thread for it, and logs why, or if the process exits.
  bool start(const char* name, std::function<void()> body) noexcept;
  // Blocks the host until all threads have ended. Returns false after `timeout`.
  bool await(std::chrono::milliseconds timeout) noexcept;

 private:
  struct State;
  NcclThreads();
  // Of this process: a child of a fork has its own.
  State& state();

  std::atomic<State*> state_;
};

}  // namespace gantry
