#include "machine/topology/binding.hpp"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gantry::machine {
namespace {

constexpr std::size_t kBits = 8 * sizeof(unsigned long);

void set_bit(std::vector<unsigned long>& mask, int bit) {
  const auto at = static_cast<std::size_t>(bit);
  if (mask.size() <= at / kBits) mask.resize(at / kBits + 1);
  mask[at / kBits] |= 1UL << (at % kBits);
}

}  // namespace

Binding::Binding(const std::optional<CpuSet>& cpus, std::optional<int> memory_node,
                 MemoryMode memory)
    : memory_policy_(memory == MemoryMode::bind ? MPOL_BIND : MPOL_PREFERRED) {
  if (cpus) {
    for (const int cpu : cpus->cpus()) set_bit(cpu_mask_, cpu);
  }
  if (memory_node && memory != MemoryMode::none) set_bit(node_mask_, *memory_node);
}

// By system call: the functions of the C library take masks of one size only.
BindingErrors Binding::apply() const noexcept {
  BindingErrors errors;
  if (!cpu_mask_.empty() &&
      syscall(SYS_sched_setaffinity, 0, cpu_mask_.size() * sizeof cpu_mask_[0], cpu_mask_.data()) !=
          0) {
    errors.cpus = errno;
  }
  // The kernel reads one bit less than it is told.
  if (!node_mask_.empty() && syscall(SYS_set_mempolicy, memory_policy_, node_mask_.data(),
                                     node_mask_.size() * kBits + 1) != 0) {
    errors.memory = errno;
  }
  return errors;
}

std::vector<std::string> describe(const BindingErrors& errors) {
  std::vector<std::string> texts;
  if (errors.cpus != 0) {
    texts.push_back(fmt::format("failed to bind to CPUs: {}; ranks run on any CPU",
                                std::strerror(errors.cpus)));
  }
  if (errors.memory != 0) {
    texts.push_back(
        fmt::format("failed to set the memory policy: {}; memory may be on any NUMA node{}",
                    std::strerror(errors.memory),
                    errors.memory == EPERM ? " (a container may forbid it: seccomp)" : ""));
  }
  return texts;
}

std::vector<std::string> BindingWarnings::add(const BindingErrors& errors) {
  if (is_told_ || errors == BindingErrors{}) return {};
  is_told_ = true;
  return describe(errors);
}

}  // namespace gantry::machine
