// The scheduling of simulated kernels.
#pragma once

#include <cstdint>

namespace gantry::protocol::schedule {

// Called before every signal that a simulated kernel reads or writes, by the thread that runs it.
using Hook = void (*)();

// Makes every kernel call `hook` from now on; nullptr for none. For tests: to try other orders, or
// to end the process at a chosen signal.
void set_hook(Hook hook) noexcept;

// Makes every wait call `hook` between two polls of a word; nullptr for none. For tests, which thus
// learn that a kernel waits.
void set_pause_hook(Hook hook) noexcept;

// Calls the hook.
void point();
// Waits between two polls of a word: first not at all, then by yielding, then by sleeping, because
// there may be fewer cores than ranks.
void pause(std::uint32_t spins);

}  // namespace gantry::protocol::schedule
