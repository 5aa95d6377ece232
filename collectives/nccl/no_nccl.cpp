#include <functional>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "collectives/nccl/clique.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/transport.hpp"

namespace gantry {

namespace {

[[noreturn]] void throw_no_nccl() { throw NotSupported("NCCL: " + nccl_problem()); }

}  // namespace

const std::string& nccl_problem() {
  static const auto& problem =
      *new std::string("this build of gantry has no NCCL (GANTRY_NCCL=OFF)");
  return problem;
}
bool nccl_takes_this_platform() { return platform() == Platform::cuda; }
std::unique_ptr<Transport> make_nccl_transport(const Membership&, Bootstrap&, ControlSegment*, bool,
                                               GroupTimeout) {
  throw_no_nccl();
}
std::unique_ptr<Transport> make_watched_nccl_transport(const Membership&, Bootstrap&,
                                                       const std::function<void()>&) {
  throw_no_nccl();
}

ForeignBootstrap make_nccl_bootstrap(ncclComm*, Device, std::chrono::milliseconds) {
  throw NotSupported("Communicator::from_nccl: " + nccl_problem());
}

bool wants_nccl(std::string_view operation, std::span<const Device> devices, std::size_t bytes,
                bool) {
  if (devices.size() < 2 || bytes == 0) return false;
  warn_without_nccl(operation, nccl_problem());
  return false;
}
void nccl_broadcast(std::span<const Tensor>, int) { throw_no_nccl(); }
void nccl_reduce(std::span<const Tensor>, const Tensor&, int, ReduceOp) { throw_no_nccl(); }
void nccl_all_reduce(std::span<const Tensor>, ReduceOp) { throw_no_nccl(); }

}  // namespace gantry
