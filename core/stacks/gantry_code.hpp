// The addresses of gantry's code in this process.
#pragma once

#include <cstdint>
#include <vector>

namespace gantry::stacks {

/// Ranges of addresses, sorted and disjoint.
class CodeRanges {
 public:
  CodeRanges() = default;
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool operator==(const Range&) const = default;
  };
  /// Joins ranges that overlap or have less than `max_gap` bytes between them.
  explicit CodeRanges(std::vector<Range> ranges, std::uintptr_t max_gap = 0);

  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept;
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] const std::vector<Range>& ranges() const noexcept { return ranges_; }
  bool operator==(const CodeRanges&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// The code of gantry's shared library; empty where gantry is linked statically.
struct GantryCode {
  CodeRanges all;
  /// The functions of the memory layer and of this folder, by the library's symbol table. Empty if
  /// it is stripped.
  CodeRanges memory;
  /// The functions of namespace gantry in files that need the library: instances of its headers'
  /// templates and inline functions, and the program's own additions. Debug information tells them
  /// apart.
  CodeRanges program;

  bool operator==(const GantryCode&) const = default;
  [[nodiscard]] bool is_known() const noexcept { return !all.empty(); }
};

/// Returns the newest list, which stays valid and unchanged. Takes a lock at the first call only.
[[nodiscard]] const GantryCode& gantry_code();
/// Returns a list of the files that are loaded now. Takes the loader's lock, and reads the symbol
/// tables of new files that need the library.
const GantryCode& refresh_gantry_code();

}  // namespace gantry::stacks
