#pragma once

#include <cstdint>
#include <string>

namespace gantry {

// Start time of process `pid` in clock ticks since boot, 0 if there is none: with the pid it names
// a process for good, although pids are reused.
std::uint64_t process_start_time(int pid);

// This machine's boot: two processes with the same text run on the same kernel.
std::string boot_id();

// Watches a process of this machine.
class PeerProcess {
 public:
  PeerProcess() = default;
  PeerProcess(int pid, std::uint64_t start_time);
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;

  // False once the process is gone, also as a zombie. One system call.
  bool alive() const noexcept;

 private:
  int pid_ = 0;
  std::uint64_t start_time_ = 0;
  int descriptor_ = -1;
};

}  // namespace gantry
