// What is known of each movable public class: how one is made, that it works, and all its members.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/gantry.hpp>

namespace gantry::testing {

/// A call of a member of a moved-from object.
template <class T>
struct MovedFromCall {
  std::string member;
  /// True if it must throw InvalidArgument; else it checks its answer itself.
  bool throws = true;
  std::function<void(T&)> call;
};

// `expression` asks the moved-from object `o`. The check of the source reads the members' names.
#define REFUSES(member, expression)                                                \
  {                                                                                \
#member, true, []([[maybe_unused]] auto& o) { static_cast<void>(expression); } \
  }
#define ANSWERS(member, expression)                                           \
  {                                                                           \
#member, false, []([[maybe_unused]] auto& o) { EXPECT_TRUE(expression); } \
  }

/// Specialized for every movable class: make(), works(T&), calls() and
/// kRefusal, what the errors of its moved-from objects contain.
template <class T>
struct Movable;

template <>
struct Movable<Tensor> {
  static constexpr std::string_view kRefusal = "an undefined tensor";
  static Tensor make();
  static bool works(Tensor& tensor);
  static std::vector<MovedFromCall<Tensor>> calls();
};

}  // namespace gantry::testing
