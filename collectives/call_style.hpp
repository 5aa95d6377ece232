#pragma once

#include "collectives/descriptor.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// Returns the style of a call's text, for flight files.
std::uint8_t style_of(CollectiveKind kind);
// Converts a descriptor to the flight file's type, which has the same bytes.
flight::Call to_call(const Descriptor& descriptor);

}  // namespace gantry
