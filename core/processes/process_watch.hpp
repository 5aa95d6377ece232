// A lasting look at another process.
#pragma once

#include <memory>

#include "core/processes/process_stamp.hpp"

namespace gantry {

/// Watches a process of this machine, with a pid descriptor where one is to be had.
///
/// Thread safety: const members may be called from any thread.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  explicit ProcessWatch(const ProcessStamp& process);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&& other) noexcept;

  [[nodiscard]] const ProcessStamp& stamp() const { return process_; }
  /// True once the process is known to have ended completely, also as a zombie. What cannot be
  /// asked is no death; see Note [Alive, ended or unknown].
  [[nodiscard]] bool has_ended() const noexcept;
  /// Readable once the process has ended; -1 if it must be asked for with has_ended(), because the
  /// kernel has no such descriptors or none was left.
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  ProcessStamp process_;
  int descriptor_ = -1;
};

/// The watch on `process` that its callers in this process share.
[[nodiscard]] std::shared_ptr<const ProcessWatch> share_watch(const ProcessStamp& process);

}  // namespace gantry
