#include "collectives/bootstrap/bootstrap.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry {

namespace {

class SingleBootstrap final : public Bootstrap {
 public:
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  int lost_rank() const noexcept override { return -1; }
  std::unique_ptr<Bootstrap> subset(const std::vector<int>& /*members*/,
                                    std::string_view /*name*/) override {
    return make_single_bootstrap();
  }
};

}  // namespace

std::unique_ptr<Bootstrap> make_single_bootstrap() { return std::make_unique<SingleBootstrap>(); }

std::unique_ptr<Bootstrap> make_bootstrap(const ProcessIdentity& identity,
                                          std::chrono::milliseconds timeout) {
  if (identity.world_size == 1) return make_single_bootstrap();
  if (identity.source == "openmpi" && has_mpi()) return make_mpi_bootstrap();
  if (!identity.rendezvous.empty()) return make_store_bootstrap(identity, timeout);
  throw NotSupported(fmt::format(
      "Communicator::world: rank {} of {} was started by {}, which gives no address where the "
      "ranks "
      "can meet. Set GANTRY_RDZV (for example tcp:HOST:PORT, the same on all ranks), or start the "
      "job with glaunch or mpirun",
      identity.rank, identity.world_size, identity.source));
}

}  // namespace gantry
