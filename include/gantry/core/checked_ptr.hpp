#pragma once

#include <string_view>
#include <utility>

#include <gantry/core/export.hpp>

namespace gantry::detail {

// Throws InvalidArgument: `member` ("MemPool::id") was called on an object that was moved from.
[[noreturn]] GANTRY_API void throw_moved_from(std::string_view member);

/// The state of a movable class: a smart pointer without operators.
///
/// of() is the only access to the state, and it throws after a move. A class that holds its state
/// in a CheckedPtr can default its move operations. No member follows the null pointer that a move
/// leaves.
template <class Pointer>
class CheckedPtr {
 public:
  CheckedPtr() = default;
  explicit CheckedPtr(Pointer pointer) : pointer_(std::move(pointer)) {}

  /// The state. `member` is the name of the calling member function.
  /// Throws: InvalidArgument that names `member`, if the state was moved away.
  [[nodiscard]] typename Pointer::element_type& of(std::string_view member) const {
    if (pointer_ == nullptr) throw_moved_from(member);
    return *pointer_;
  }

 private:
  Pointer pointer_{};
};

}  // namespace gantry::detail
