#include "collectives/bootstrap/bootstrap.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/mpi/library.hpp"
#include "core/text/escaped_text.hpp"
#include "job/pmi_rendezvous.hpp"

namespace gantry {

namespace {

class SingleBootstrap final : public Bootstrap {
 public:
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>& /*members*/,
                                    std::string_view /*name*/) override {
    return make_single_bootstrap();
  }
};

// PMIx tells a process its rank, but the number of ranks only through its library. Throws:
// NotSupported if this process is not rank 0, which may be the only one.
void require_alone(const ProcessIdentity& identity) {
  constexpr const char* kRemedy =
      "start the ranks with glaunch or Open MPI's mpirun, or set GANTRY_RANK=$PMIX_RANK, "
      "GANTRY_WORLD_SIZE and GANTRY_RDZV for each of them";
  const std::string rank = escape_control_characters(env::get("PMIX_RANK").value_or(""));
  if (rank != "0") {
    throw NotSupported(fmt::format(
        "Communicator::world: failed to find the number of ranks: PMIX_RANK={} is set, but no "
        "variable tells how many ranks the job {} has; {}",
        rank, escape_control_characters(identity.job_id), kRemedy));
  }
  logging::warn(fmt::format(
      "Communicator::world: this process is the only rank of its world: PMIX_RANK=0 is set, but no "
      "variable tells how many ranks the job {} has; if there are several, {}",
      escape_control_characters(identity.job_id), kRemedy));
}

}  // namespace

std::string duration_text(std::chrono::milliseconds duration) {
  return duration.count() % 1000 == 0 ? fmt::format("{} s", duration.count() / 1000)
                                      : fmt::format("{} ms", duration.count());
}

std::string Bootstrap::absence_text(int rank, std::chrono::milliseconds waited,
                                    const std::vector<int>& missing) const {
  return fmt::format("{}: rank {} waited {}, but rank(s) {} did not come ({})", purpose_, rank,
                     duration_text(waited), fmt::join(missing, ", "), deadline_source_);
}

int Bootstrap::rank_among(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

std::unique_ptr<Bootstrap> Bootstrap::through(const ControlSegment& own, std::size_t size) const {
  std::vector<int> everyone(size);
  std::iota(everyone.begin(), everyone.end(), 0);
  auto made = make_shared_memory_bootstrap(own, everyone, 0);
  made->set_purpose(purpose());
  return made;
}

std::unique_ptr<Bootstrap> make_single_bootstrap() { return std::make_unique<SingleBootstrap>(); }

std::unique_ptr<Bootstrap> make_bootstrap(const ProcessIdentity& identity,
                                          std::chrono::milliseconds timeout) {
  if (identity.source == "pmix") require_alone(identity);
  if (identity.world_size == 1) return make_single_bootstrap();
  std::string no_mpi;
  if (identity.source == "openmpi") {
    if (has_mpi()) return make_mpi_bootstrap(identity, timeout);
    logging::info("Communicator::world: no MPI: " + mpi_module().problem());
    no_mpi = fmt::format(" (no MPI: {})", mpi_module().problem());
  }
  if (!identity.rendezvous.empty()) return make_store_bootstrap(identity, timeout);
  if (identity.source == "environment") {
    throw NotSupported(fmt::format(
        "Communicator::world: GANTRY_RANK={} and GANTRY_WORLD_SIZE={} are set, but nothing says "
        "where the ranks meet; set GANTRY_RDZV (unix:@NAME, or tcp:HOST:PORT with "
        "GANTRY_RDZV_TOKEN), or MASTER_ADDR and MASTER_PORT, the same on all ranks, or start the "
        "job with glaunch",
        identity.rank, identity.world_size));
  }
  if (identity.source == "pmi" || identity.source == "mvapich") {
    ProcessIdentity here = identity;
    std::string problem;
    here.rendezvous = pmi_rendezvous(identity, problem);
    if (!here.rendezvous.empty()) return make_store_bootstrap(here, timeout);
    throw NotSupported(fmt::format(
        "Communicator::world: failed to find where the ranks of the {} job meet: {}; set "
        "GANTRY_RDZV (tcp:HOST:PORT with GANTRY_RDZV_TOKEN, or unix:@NAME on one machine; the same "
        "on all ranks), or start the job with glaunch or Open MPI's mpirun",
        identity.source == "pmi" ? "PMI" : "MVAPICH", problem));
  }
  throw NotSupported(fmt::format(
      "Communicator::world: rank {} of {} was started by {}, which gives no address where the "
      "ranks can meet{}. Set GANTRY_RDZV (for example tcp:HOST:PORT, with GANTRY_RDZV_TOKEN; the "
      "same on all ranks), or start the job with glaunch or mpirun",
      identity.rank, identity.world_size, identity.source, no_mpi));
}

}  // namespace gantry
