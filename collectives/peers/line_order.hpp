#pragma once

namespace gantry {

// True if stores of an LL128 line from `device` to `peer`, devices of this process, arrive in the
// order of their addresses: see Note [LL and LL128].
//
// It is so within a device and over NVLinks. The driver tells of atomics to the peer's memory,
// which some PCIe platforms have, too, and NVML tells of NVLinks. A link that NVML does not know
// counts as none. On simulated devices NVML is not asked.
bool keeps_line_order(int device, int peer);

}  // namespace gantry
