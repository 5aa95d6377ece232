#pragma once

#include <string>

#include <gantry/job/process_identity.hpp>

namespace gantry {

// Note [Meeting under PMI]
// The variables of PMI launchers (MPICH's hydra, Intel MPI, MVAPICH, Cray) have no address, and no
// name that is unique to the job. But one process of the launcher starts all ranks of a machine:
// it made the socket PMI_FD of each, or is the parent of each. That process names the job. The
// launcher is not asked over PMI_FD: hydra kills a job of which a process asked and ended without
// MPI_Finalize, and PMI-1 and PMI-2 differ.

// The address where the ranks of a PMI job on one machine meet. Empty if the ranks are on several
// machines, or if the launcher does not say so; `problem` says what is missing then.
std::string pmi_rendezvous(const ProcessIdentity& identity, std::string& problem);

}  // namespace gantry
