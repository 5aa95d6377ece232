#pragma once

#include "collectives/descriptor.hpp"
#include "job/flight_file.hpp"

namespace gantry {

// How the text of calls of this kind is built.
std::uint8_t style_of(CollectiveKind kind);
// The same bytes under the flight file's name.
flight::Call to_call(const Descriptor& descriptor);

}  // namespace gantry
