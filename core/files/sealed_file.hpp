// Files in memory that several processes map.
#pragma once

#include <fcntl.h>

namespace gantry {

/// True if no process can shorten the file of `descriptor`: another process that could would make
/// those that map it fault (SIGBUS).
[[nodiscard]] inline bool is_sealed(int descriptor) noexcept {
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace gantry
