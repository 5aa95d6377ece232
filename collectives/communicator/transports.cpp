// How a group makes its transports, and chooses one for a call.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/device/properties.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "collectives/communicator/impl.hpp"
#include "collectives/hierarchical/transport.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/protocol/layout.hpp"
#include "collectives/traced_collective.hpp"
#include "core/text/escaped_text.hpp"
#include "memory/policy/backend.hpp"

namespace gantry {

// All ranks must decide alike, but the library may be absent from some
// machines.
bool Communicator::Impl::agree_on_nccl() {
  if (agreed_on_nccl_ || !selector_.has_nccl()) return selector_.has_nccl();
  const std::vector<std::string> all = bootstrap->all_gather(nccl_problem());
  for (std::size_t rank = 0; rank < all.size() && selector_.has_nccl(); ++rank) {
    if (!all[rank].empty())
      selector_.forbid_nccl(fmt::format("rank {}: {}", rank, escape_control_characters(all[rank])));
  }
  agreed_on_nccl_ = true;
  return selector_.has_nccl();
}

void Communicator::Impl::make_transports() {
  if (selector_.may_choose_nccl()) agree_on_nccl();
  if (one_machine_) {
    control = std::make_unique<ControlSegment>(*bootstrap, membership.rank, membership.size,
                                               timeout_, name);
    control->describe_device(ranks->description(membership.rank),
                             device_properties(membership.device).uuid);
    // Backends of the driver ask it for their figures, which a watchdog must
    // not.
    const memory::Backend* backend = memory::find_backend(memory::allocator_backend());
    if (backend == nullptr || !backend->is_of_driver) {
      control->publish_memory([device = membership.device] {
        const memory::Stats stats = memory::stats(device);
        return MemoryUse{stats.allocated_bytes.all.current, stats.reserved_bytes.all.current};
      });
    }
    if (auto moved = bootstrap->move_to(*control)) {
      first_bootstrap = std::exchange(bootstrap, std::move(moved));
    }
  }
  if (!one_machine_ && selector_.forced() == Algorithm::host) {
    host = make_host_transport(membership, *bootstrap, identity.source == "local");
    return;
  }
  if (!one_machine_ && !forces_nccl()) {
    host = make_hierarchical_transport(membership, *bootstrap, ranks->machines(),
                                       device_properties(membership.device).name, timeout_, name);
    return;
  }
  const Algorithm wanted = selector_.forced();
  const bool wants_peers =
      !forces_nccl() && wanted != Algorithm::host && peer_mode() != PeerMode::off;
  if (one_machine_ && wants_peers && membership.size <= protocol::kMaxRanks) {
    p2p = make_p2p_transport(membership, *bootstrap, *control, selector_);
  }
  if (p2p) return;
  if (wanted != Algorithm::host && agree_on_nccl()) {
    nccl = make_nccl_transport(membership, *bootstrap, control.get(),
                               /*reports_progress=*/true, timeout_);
  } else {
    host = make_host_transport(membership, *bootstrap, identity.source == "local");
  }
}

bool Communicator::Impl::forces_nccl() const {
  return selector_.forced() == Algorithm::nccl && selector_.has_nccl();
}

ResolvedCall Communicator::Impl::resolve(const CollectiveCall& call) {
  if (p2p) {
    // Ranks that differ in a list leave it after its first transfer, but their
    // hosts do not know: none may wait for another one.
    const bool stays = call.continues && last_transport_ == p2p.get();
    ResolvedCall resolved = resolve_over_peers(call, membership.size, selector_, *p2p, stays);
    if (resolved.via == nullptr) resolved.via = nccl.get();
    return resolved;
  }
  ResolvedCall resolved(call, membership.size);
  resolved.via = nccl ? nccl.get() : host.get();
  resolved.choice.algorithm = nccl ? Algorithm::nccl : Algorithm::host;
  if (!nccl) selector_.warn_unless_forced(call.what, resolved.message_bytes, Algorithm::host);
  return resolved;
}

Transport& Communicator::Impl::begin(const ResolvedCall& call, const Stream& stream,
                                     bool is_grouped) {
  if (!call.continues) {
    TracedCollective::note_algorithm(call.choice.algorithm);
    if (control) {
      control->record(call.what, call.choice.algorithm, call.message_bytes, stream.id(),
                      call.send_counts, call.recv_counts, is_grouped);
    }
  }
  if (call.via != nullptr) return *call.via;
  if (!nccl) start_nccl(call);
  return *nccl;
}

// Starting NCCL waits for all ranks, so calls are compared first.
void Communicator::Impl::start_nccl(const ResolvedCall& call) {
  bootstrap->set_purpose(gantry::name(call.what.kind));
  if (control) {
    control->rendezvous(HostCall::none, static_cast<std::uint64_t>(call.what.call));
    control->verify(static_cast<std::uint64_t>(call.what.call));
  }
  nccl = make_nccl_transport(membership, *bootstrap, control.get(),
                             /*reports_progress=*/false, timeout_);
}

}  // namespace gantry
