// The ends of NCCL that other threads carry out.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>

namespace gantry {

// Functions that end something and may block, each in a thread of its own. One that blocks delays
// no other: an NCCL kernel that it waits for may need the end of another communicator.
//
// The process waits for them before it exits, because they must not run concurrently with CUDA's
// shutdown. A forked child has none of its parent's.
//
// Thread safety: every member may be called from any thread.
class BackgroundEnds {
 public:
  // Never destroyed: threads may use it until the process ends.
  static BackgroundEnds& instance();
  BackgroundEnds(const BackgroundEnds&) = delete;
  BackgroundEnds& operator=(const BackgroundEnds&) = delete;

  // Runs `end` in a thread with this name, at most 15 characters. Logs what it throws.
  // Returns false, and logs why, if there is no thread for it.
  bool start(const char* name, std::function<void()> end) noexcept;
  // Blocks the host until all ends have returned. Returns false after `timeout`.
  bool await(std::chrono::milliseconds timeout) noexcept;

 private:
  struct State;
  BackgroundEnds();
  // Of this process: a child of a fork has its own.
  State& state();

  std::atomic<State*> state_;
};

}  // namespace gantry
