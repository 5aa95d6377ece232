#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/export.hpp>

namespace gantry {

/// Ranks of a group made different calls. Copying never throws.
/// @code
/// try {
///   Communicator::world().host_barrier();
/// } catch (const CollectiveMismatch& error) {
///   std::cout << error.what();  // both ranks and calls
/// }
/// @endcode
/// @since 0.1
class GANTRY_API CollectiveMismatch : public InvalidArgument {
 public:
  /// `ranks` are the ranks that differ, and `calls` their calls. Both have the same length, or are
  /// empty.
  explicit CollectiveMismatch(const std::string& message, std::vector<int> ranks = {},
                              std::vector<std::string> calls = {},
                              std::source_location where = std::source_location::current());

  /// Two ranks whose calls differ; empty if unknown.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept;
  /// The call of each of ranks(), such as "all_reduce sum f32[4]".
  [[nodiscard]] const std::vector<std::string>& calls() const noexcept;

 private:
  struct GANTRY_LOCAL Sides;
  std::shared_ptr<const Sides> sides_;
};

}  // namespace gantry
