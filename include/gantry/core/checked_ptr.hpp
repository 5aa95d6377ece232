#pragma once

#include <string_view>
#include <utility>

#include <gantry/core/export.hpp>

namespace gantry::detail {

// Throws InvalidArgument: `member` ("MemPool::id") was called on an object that was moved from.
[[noreturn]] GANTRY_API void throw_moved_from(std::string_view member);

/// The state of a movable class: a smart pointer without operators.
///
/// The only way to the state names the member that asks, and throws after a move. A class whose
/// moves are this one's therefore cannot follow the null pointer that a move leaves.
template <class Pointer>
class CheckedPtr {
 public:
  CheckedPtr() = default;
  explicit CheckedPtr(Pointer pointer) : pointer_(std::move(pointer)) {}

  /// The state. Throws: InvalidArgument, naming `member`, if it was moved away.
  [[nodiscard]] typename Pointer::element_type& of(std::string_view member) const {
    if (pointer_ == nullptr) throw_moved_from(member);
    return *pointer_;
  }

 private:
  Pointer pointer_{};
};

}  // namespace gantry::detail
