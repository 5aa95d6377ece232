// Launches of the collective kernels, on both platforms.
#pragma once

#include <gantry/streams/stream.hpp>

#include "collectives/protocol/plan.hpp"
#include "device/sim/streams/sim_launch.hpp"

namespace gantry::protocol {

// Each kernel is a type. simulate() runs it on the calling thread, and enqueue() on a GPU's stream.
namespace kernel {
#define KERNEL(name, PlanType, waits)                                                       \
  struct name {                                                                             \
    using Plan = PlanType;                                                                  \
    static constexpr ::gantry::sim::KernelWaits kWaits = ::gantry::sim::KernelWaits::waits; \
    static void simulate(const Plan& plan, int blocks);                                     \
    static void enqueue(void* stream, const Plan& plan, int blocks);                        \
    static void preload();                                                                  \
  };
#include "collectives/protocol/kernels.def"
#undef KERNEL
}  // namespace kernel

// Enqueues a kernel of `blocks` blocks on `stream`, a stream of the rank's device. Arguments are
// not checked.
template <class Kernel>
void launch(const typename Kernel::Plan& plan, int blocks, const Stream& stream);

// Loads all kernels for the current device. A first launch may wait for the device, and thereby for
// a kernel that waits for that launch.
void preload();

}  // namespace gantry::protocol
