#pragma once

#include <string>

namespace gantry {

// Note [Uncaught exceptions]
// Several processes may print to one terminal. "terminate called after throwing …" names neither
// the rank nor the device. So Communicator::world() installs a terminate handler. For a
// gantry::Error it prints one line with rank and device, reports to the launcher, and aborts. That
// ends the job under glaunch, mpirun and torchrun. All other exceptions go to the previous handler.
// So does a gantry::Error if the program has its own handler. Programs without world() keep their
// handler.

// Installs the handler once. It prints `rank` from then on.
void report_uncaught_errors(int rank);
// Sets the device, such as "cuda:2", that the handler prints for errors without one.
void report_uncaught_errors_on(const std::string& device);

}  // namespace gantry
