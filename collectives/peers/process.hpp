#pragma once

#include <memory>

#include "core/process_stamp.hpp"

namespace gantry {

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
  const ProcessStamp& stamp() const { return process_; }
  // Readable once the process is gone; -1 if it must be asked for with alive().
  int descriptor() const { return descriptor_; }

 private:
  ProcessStamp process_;
  int descriptor_ = -1;
};

// The watch on `process` that this process has already, or a new one.
std::shared_ptr<const PeerProcess> share_peer(const ProcessStamp& process);

}  // namespace gantry
