#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/machine/cpu_set.hpp>
#include <gantry/machine/plan.hpp>

namespace gantry::machine {

/// errno of each part of a binding; 0 where it worked.
struct BindingErrors {
  int cpus = 0;
  int memory = 0;

  friend bool operator==(const BindingErrors&, const BindingErrors&) = default;
};

/// CPUs and memory of a process, ready for the system calls: apply() may run between fork and exec.
class Binding {
 public:
  /// `cpus`: none leaves them as they are. `memory_node`: none leaves the memory policy as it is.
  Binding(const std::optional<CpuSet>& cpus, std::optional<int> memory_node,
          MemoryMode memory = MemoryMode::prefer);

  /// Binds the calling thread to the CPUs, and lets it prefer the memory of the node, or have no
  /// other. Async-signal-safe.
  [[nodiscard]] BindingErrors apply() const noexcept;

 private:
  std::vector<unsigned long> cpu_mask_;
  std::vector<unsigned long> node_mask_;
  int memory_policy_;
};

/// Warnings for the user; none if all went well.
[[nodiscard]] std::vector<std::string> describe(const BindingErrors& errors);

/// Warnings of the ranks of one machine, for which the same goes wrong.
class BindingWarnings {
 public:
  /// The warnings about a rank, unless another one had any.
  [[nodiscard]] std::vector<std::string> add(const BindingErrors& errors);

 private:
  bool is_told_ = false;
};

}  // namespace gantry::machine
