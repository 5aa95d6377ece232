#pragma once

#include <memory>

#include "core/process_watch.hpp"

namespace gantry {

// Watches a process of this machine.
class PeerProcess {
 public:
  PeerProcess() = default;
  explicit PeerProcess(const ProcessStamp& process) : watch_(process) {}

  // False once the process is known to be gone, also as a zombie.
  bool alive() const noexcept { return !watch_.has_ended(); }
  const ProcessStamp& stamp() const { return watch_.stamp(); }
  // Readable once the process is gone, unless the program has closed it; -1 if it must be asked for
  // with alive().
  int descriptor() const { return watch_.descriptor(); }

 private:
  ProcessWatch watch_;
};

// The watch on `process` that this process has already, or a new one.
std::shared_ptr<const PeerProcess> share_peer(const ProcessStamp& process);

}  // namespace gantry
