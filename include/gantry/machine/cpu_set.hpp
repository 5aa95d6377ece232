#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry::machine {

class CpuSet;

/// The CPUs that are in both sets (&), in at least one (|), or in the first only (-).
/// @{
[[nodiscard]] GANTRY_API CpuSet operator&(const CpuSet& a, const CpuSet& b);
[[nodiscard]] GANTRY_API CpuSet operator|(const CpuSet& a, const CpuSet& b);
[[nodiscard]] GANTRY_API CpuSet operator-(const CpuSet& a, const CpuSet& b);
/// @}
/// Writes str().
GANTRY_API std::ostream& operator<<(std::ostream& out, const CpuSet& set);

/// A set of CPUs, by the numbers of the operating system.
/// @code
/// const machine::CpuSet cpus = machine::CpuSet::parse("0-3,8");
/// std::cout << cpus.size();
/// @endcode
/// @since 0.3
class GANTRY_API CpuSet {
 public:
  CpuSet() = default;
  /// A set of these CPUs. Throws: InvalidArgument for a number below 0 or above 65535.
  CpuSet(std::initializer_list<int> cpus);
  explicit CpuSet(std::vector<int> cpus);

  /// Parses a list as Linux writes it: "0-3,8".
  /// Throws: InvalidArgument "CpuSet: expected a list such as 0-3,8, but got '…'".
  [[nodiscard]] static CpuSet parse(std::string_view list);
  /// The list: "0-3,8"; empty for an empty set.
  [[nodiscard]] std::string str() const;

  /// True if there is no CPU in it.
  [[nodiscard]] bool empty() const noexcept { return cpus_.empty(); }
  /// Number of CPUs.
  [[nodiscard]] std::size_t size() const noexcept { return cpus_.size(); }
  /// True if `cpu` is in the set.
  [[nodiscard]] bool contains(int cpu) const noexcept;
  /// True if every CPU of this set is in `other`.
  [[nodiscard]] bool is_subset_of(const CpuSet& other) const noexcept;
  /// True if a CPU is in both sets.
  [[nodiscard]] bool intersects(const CpuSet& other) const noexcept;
  /// The CPUs in ascending order.
  [[nodiscard]] const std::vector<int>& cpus() const noexcept { return cpus_; }

  friend bool operator==(const CpuSet& a, const CpuSet& b) = default;

 private:
  std::vector<int> cpus_;  // ascending, each once
};

/// CPUs that the calling thread may run on.
/// @since 0.3
[[nodiscard]] GANTRY_API CpuSet current_cpus();

}  // namespace gantry::machine
