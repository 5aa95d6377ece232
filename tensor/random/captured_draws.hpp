// Draws of random generators, also in captures.
#pragma once

#include <gantry/tensor/random.hpp>

#include "kernels/random/random.hpp"

namespace gantry::detail {

// Note [Captured draws]
// A captured kernel has the same arguments at each replay. So the position of the generator cannot
// be an argument: each replay draws the numbers that the eager program would draw then. The kernel
// reads the position from device memory instead. A replay takes as many offsets from the generator
// as the capture drew, and writes the first into that memory before the graph runs. The graph owns
// that memory, with one position for each generator.

// The position of the generator's next draw on the current stream of its device. In the capture of
// a Graph it is relative to a position that each replay sets; the generator itself stays.
[[nodiscard]] kernels::RandomPosition next_draw(Generator& generator);

}  // namespace gantry::detail
