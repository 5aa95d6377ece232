// Access of the program's devices to each other's memory.
#pragma once

namespace gantry::cudart_api {

// True for equal devices, and for a pair whose access the program has enabled.
bool reaches(int device, int peer);
// Takes all access of `device` away.
void reset_access(int device);

}  // namespace gantry::cudart_api
