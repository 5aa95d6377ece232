// The real NCCL, which carries the communicators that gantry would carry over the hosts.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>

#include "compat/nccl/operation.hpp"
#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// Note [Communicators handed over]
// GANTRY_NCCL_FALLBACK names NCCL's library. A communicator is then NCCL's from its creation if its
// ranks do not reach each other's device memory. gantry would move their data over the hosts. All
// ranks agree first: each tells the others the version of its library, or why it has none. One rank
// without it leaves the communicator to gantry. NCCL has the operations of such a communicator.
// gantry's group stays beside it, and tells lost ranks. It makes parts of the communicator, each of
// which is gantry's or NCCL's by the same rule.

// An error that NCCL returned.
class TheirFailure : public std::runtime_error {
 public:
  TheirFailure(ncclResult_t result, const std::string& text)
      : std::runtime_error(text), result_(result) {}
  [[nodiscard]] ncclResult_t result() const noexcept { return result_; }

 private:
  ncclResult_t result_;
};

// True if GANTRY_NCCL_FALLBACK names a library.
bool has_fallback() noexcept;

// NCCL's communicator for this rank of `group`; null if the group is gantry's. With a fallback, the
// hosts of all ranks of a group "host" meet. Throws: TheirFailure; as all_gather_bytes().
ncclComm_t hand_over(const Communicator& group);
// As hand_over(), for all ranks of a group that one thread makes. Empty if the group is gantry's.
std::vector<ncclComm_t> hand_over_all(std::span<const Communicator> groups);

// Calls of NCCL's for a communicator of hand_over(). All but the last two throw TheirFailure.
namespace theirs {

void run(ncclComm_t comm, const Operation& operation);
void start_group();
void end_group();
ncclRedOp_t add_operator(ncclComm_t comm, ncclDataType_t type, void* scalar,
                         ncclScalarResidence_t residence);
void remove_operator(ncclComm_t comm, ncclRedOp_t op);
// Its asynchronous error, or null.
std::exception_ptr failure(ncclComm_t comm) noexcept;
// Ends the communicator: once its work is done, or at once.
void leave(ncclComm_t comm, bool aborts) noexcept;

}  // namespace theirs

// Writes to stderr which communicators were handed over, and why others were not.
void print_fallback_report();

}  // namespace gantry::nccl_api
