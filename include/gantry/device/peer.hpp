#pragma once

#include <ostream>
#include <vector>

#include <gantry/core/export.hpp>
#include <gantry/device/device.hpp>

namespace gantry {

/// True if kernels and copies on `from` can reach memory of `to` directly. A device reaches itself.
/// Example: `if (can_access_peer("cuda:0", "cuda:1")) enable_peer_access("cuda:0", "cuda:1");`
/// @since 0.1
[[nodiscard]] GANTRY_API bool can_access_peer(Device from, Device to);

/// Lets kernels and copies on `from` reach memory of `to`. Enabling twice has no effect. A stream
/// capture may be under way.
/// Throws: NotSupported if the pair has no peer access.
/// @since 0.1
GANTRY_API void enable_peer_access(Device from, Device to);

/// Peer access between all pairs of visible devices.
/// @since 0.1
struct PeerMatrix {
  int count = 0;             ///< number of visible devices
  std::vector<bool> access;  ///< row-major: access[from * count + to]

  /// True if device `from` reaches memory of device `to`. Indices are not checked.
  [[nodiscard]] bool can_access(int from, int to) const noexcept {
    return access[static_cast<std::size_t>(from) * static_cast<std::size_t>(count) +
                  static_cast<std::size_t>(to)];
  }
};

/// The peer matrix of all visible devices, read once and cached.
/// @since 0.1
[[nodiscard]] GANTRY_API PeerMatrix peer_matrix();

/// Writes the matrix as a table with one row per device.
GANTRY_API std::ostream& operator<<(std::ostream& out, const PeerMatrix& matrix);

}  // namespace gantry
