#pragma once

#include <string>

#include "core/process_stamp.hpp"

namespace gantry {

// This machine's boot: two processes with the same text run on the same kernel.
std::string boot_id();

// Watches a process of this machine.
class PeerProcess {
 public:
  PeerProcess() = default;
  explicit PeerProcess(const ProcessStamp& process);
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;

  // False once the process is gone, also as a zombie. One system call.
  bool alive() const noexcept;

 private:
  ProcessStamp process_;
  int descriptor_ = -1;
};

}  // namespace gantry
