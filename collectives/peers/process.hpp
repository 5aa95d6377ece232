#pragma once

#include <memory>

#include "core/processes/process_watch.hpp"

namespace gantry {

// Watches a process of this machine.
class PeerProcess {
 public:
  PeerProcess() = default;
  explicit PeerProcess(const ProcessStamp& process) : watch_(process) {}

  // False once the process has ended, also as a zombie.
  bool alive() const noexcept { return !watch_.has_ended(); }
  const ProcessStamp& stamp() const { return watch_.stamp(); }
  // A pidfd, readable once the process has ended; -1 if there is none, so that alive() must be
  // polled.
  int descriptor() const { return watch_.descriptor(); }

 private:
  ProcessWatch watch_;
};

// Returns this process's existing watch on `process`, or a new one.
std::shared_ptr<const PeerProcess> share_peer(const ProcessStamp& process);

}  // namespace gantry
