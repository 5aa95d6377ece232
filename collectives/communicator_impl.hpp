#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/process_identity.hpp>

#include "collectives/bootstrap.hpp"
#include "collectives/control_block.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// The members of one group on this rank, and what carries their data.
class Communicator::Impl {
 public:
  explicit Impl(ProcessIdentity identity);

  // The transport for a call. NCCL is started at its first use, on all ranks by the same call.
  Transport& transport_for(const Descriptor& call, std::int64_t bytes);
  // Waits until no rank needs this one's memory, then gives it up; at process exit.
  void finish() noexcept;

  ProcessIdentity identity;
  Membership membership;
  std::vector<std::string> device_map;
  std::unique_ptr<Bootstrap> bootstrap;
  std::unique_ptr<ControlBlock> control;  // null with one rank, or ranks on several machines
  std::unique_ptr<Transport> p2p;         // null if ranks cannot reach each other's memory
  std::unique_ptr<Transport> nccl;
  std::mutex mutex;
  std::int64_t sequence = 0;

 private:
  enum class Algorithm : std::uint8_t { automatic, p2p, nccl };

  Algorithm algorithm_ = Algorithm::automatic;
  bool finished_ = false;
};

}  // namespace gantry
