// The table that is refreshed until a key or a signal ends it.
#pragma once

#include <chrono>

#include "machine/nvml/nvml.hpp"

namespace gantry::top {

/// Shows the table on the terminal. Returns after q or Ctrl-C. A signal that ends the program does
/// so once the terminal is restored. Throws: Error without a terminal.
void run_live(const machine::Nvml& nvml, std::chrono::milliseconds interval);

}  // namespace gantry::top
