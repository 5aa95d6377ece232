// Where a process maps the memory of others.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "ipc/exporter.hpp"
#include "ipc/handle.hpp"
#include "ipc/mirrors.hpp"

namespace gantry::memory {

/// The place of a member's Mirrors, by which the other members of a group reach them.
struct MirrorPlace {
  ProcessScope process;
  std::uint64_t nonce = 0;    ///< of its service
  std::uint64_t mirrors = 0;  ///< the number of its Mirrors

  /// The place of `mirrors` of this process. Starts the service. Throws: Error, std::system_error.
  [[nodiscard]] static MirrorPlace of(const Mirrors& mirrors) {
    return {this_process_scope(), start_ipc_service(), mirrors.number()};
  }

  /// As bytes, for another process of this machine with this version of gantry.
  [[nodiscard]] std::string bytes() const {
    static_assert(std::is_trivially_copyable_v<MirrorPlace>);
    return {reinterpret_cast<const char*>(this), sizeof *this};
  }
  /// nullopt unless `bytes` has the length of a place.
  [[nodiscard]] static std::optional<MirrorPlace> from(std::string_view bytes) {
    MirrorPlace place;
    if (bytes.size() != sizeof place) return std::nullopt;
    std::memcpy(&place, bytes.data(), sizeof place);
    return place;
  }
};

}  // namespace gantry::memory
