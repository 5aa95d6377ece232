#pragma once

#include <string>

namespace gantry {

// Note [Uncaught exceptions]
// Where several processes print into one terminal, "terminate called after throwing …" does not say
// which rank ended, nor on which device. So Communicator::world() installs a terminate handler: of
// a gantry::Error it prints one line with rank and device, tells the launcher, and aborts, which
// ends the job under glaunch, mpirun and torchrun alike. Everything else goes to the handler that
// was there before; so does a gantry::Error if the program has one of its own. Programs without
// world() keep theirs.

// Installs that handler, once; from then on it names `rank`.
void report_uncaught_errors(int rank);
// From now on the handler names `device`, such as "cuda:2", where an error names none.
void report_uncaught_errors_on(const std::string& device);

}  // namespace gantry
