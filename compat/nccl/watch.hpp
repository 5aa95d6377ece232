// Tells the faults of groups whose programs do not ask for them.
#pragma once

#include <memory>

namespace gantry::nccl_api {

class Rank;

// Note [Faults of NCCL's programs]
// A program of NCCL's waits for its streams by CUDA's own calls, in which gantry cannot throw. An
// operation that failed thus looks complete, and its outputs are unchanged. So a thread asks every
// group of the process for its failure, and writes the first one of each rank to stderr. The next
// call of the interface, and ncclCommGetAsyncError(), return it as well.

// Watches `rank` until it is destroyed.
void watch(const std::shared_ptr<Rank>& rank);

}  // namespace gantry::nccl_api
