// The data of errors beside their text.
#pragma once

#include <memory>

namespace gantry::detail {

// The payload of an error, or an empty one after the error was moved from.
template <class T>
const T& payload_or_empty(const std::shared_ptr<const T>& payload) noexcept {
  static const T& kEmpty = *new T{};  // background threads may read it while the process exits
  return payload != nullptr ? *payload : kEmpty;
}

}  // namespace gantry::detail
