// The names of streams in errors of the drivers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The number of a stream that the program sees, Stream::id(); none for a stream without one.
using StreamNumbering = std::optional<std::uint64_t> (*)(NativeStream stream) noexcept;

/// Lets drivers name streams by `numbering`, from now on and for the whole process.
void set_stream_numbering(StreamNumbering numbering) noexcept;
/// The number of a stream; none if nothing numbers it.
[[nodiscard]] std::optional<std::uint64_t> number_of(NativeStream stream) noexcept;
/// True once streams are numbered. Until then a driver may number them itself.
[[nodiscard]] bool has_stream_numbering() noexcept;

/// "the default stream of cuda:0"; "stream 3 of cuda:0", by its number; a stream without one has
/// its handle: "stream 0x55… of cuda:0".
[[nodiscard]] std::string name_of_stream(NativeStream stream);

}  // namespace gantry
