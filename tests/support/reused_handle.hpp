// Streams whose handles were another stream's before.
#pragma once

#include <optional>
#include <vector>

#include <gantry/extend/driver.hpp>

namespace gantry::testing {

/// A new stream with the handle of `destroyed`; none if the driver does not use it again soon.
inline std::optional<NativeStream> stream_with_handle_of(NativeStream destroyed) {
  std::vector<NativeStream> others;
  std::optional<NativeStream> again;
  for (int i = 0; i < 100 && !again; ++i) {
    const NativeStream made = driver().create_stream(destroyed.device, 0);
    if (made == destroyed) {
      again = made;
    } else {
      others.push_back(made);
    }
  }
  for (const NativeStream other : others) driver().destroy_stream(other);
  return again;
}

}  // namespace gantry::testing
