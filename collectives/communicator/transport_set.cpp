#include "collectives/communicator/transport_set.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "collectives/hierarchical/transport.hpp"
#include "collectives/peers/probe.hpp"
#include "collectives/protocol/layout.hpp"
#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

TransportSet::TransportSet(Members& members)
    : members_(members), registrations_(members.self.rank, members.self.device, /*opens=*/false) {
  const Membership& self = members_.self;
  selector_ = Selector::load(self.size, device_properties(self.device).name);
  if (!nccl_takes_this_platform()) selector_.forbid_nccl("it needs real GPUs");
  if (self.rank == 0) selector_.warn_ignored();
  // A wrong GANTRY_ALLOC_CONF throws here; in the probe it would look like links that do not work.
  (void)memory::allocator(self.device);
  members_.exchange_facts(selector_);
  if (self.size > 1) make();
}

// All ranks must decide alike, but the library may be absent from some machines.
bool TransportSet::agree_on_nccl() {
  if (agreed_on_nccl_ || !selector_.has_nccl()) return selector_.has_nccl();
  const std::vector<std::string> all = members_.bootstrap->all_gather(nccl_problem());
  for (std::size_t rank = 0; rank < all.size() && selector_.has_nccl(); ++rank) {
    if (!all[rank].empty())
      selector_.forbid_nccl(fmt::format("rank {}: {}", rank, escape_control_characters(all[rank])));
  }
  agreed_on_nccl_ = true;
  return selector_.has_nccl();
}

void TransportSet::make() {
  const Membership& self = members_.self;
  if (selector_.may_choose_nccl()) agree_on_nccl();
  members_.open_control();
  const Algorithm wanted = selector_.forced();
  const auto make_host = [&] {
    return make_host_transport(self, *members_.bootstrap, members_.identity.source == "local",
                               members_.timeout);
  };
  if (!members_.are_on_one_machine && wanted == Algorithm::host) {
    host_ = make_host();
    return;
  }
  if (!members_.are_on_one_machine && !forces_nccl()) {
    host_ = make_hierarchical_transport(self, *members_.bootstrap, members_.ranks->machines(),
                                        device_properties(self.device).name, members_.timeout,
                                        members_.label, why_no_nccl_between_machines());
    return;
  }
  const bool wants_peers =
      !forces_nccl() && wanted != Algorithm::host && peer_mode() != PeerMode::off;
  if (members_.are_on_one_machine && wants_peers && self.size <= protocol::kMaxRanks) {
    p2p_ = make_p2p_transport(self, *members_.bootstrap, *members_.control, selector_,
                              members_.share_addresses);
  }
  if (p2p_) return;
  if (wanted != Algorithm::host && agree_on_nccl()) {
    nccl_ = make_nccl_transport(self, *members_.bootstrap, members_.control.get(),
                                /*reports_progress=*/true, members_.timeout);
  } else {
    host_ = make_host();
  }
}

// All ranks must decide alike, whatever their variables say.
std::string TransportSet::why_no_nccl_between_machines() {
  const std::string links = env::kHostLinks.get();
  std::string mine;
  if (links != "auto" && links != "nccl") {
    mine = fmt::format("GANTRY_HOST_LINKS={}", links);
  } else {
    mine = nccl_takes_this_platform() ? nccl_problem() : "it needs real GPUs";
  }
  const std::vector<std::string> all = members_.bootstrap->all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty())
      return fmt::format("rank {}: {}", rank, escape_control_characters(all[rank]));
  }
  return {};
}

bool TransportSet::forces_nccl() const {
  return selector_.forced() == Algorithm::nccl && selector_.has_nccl();
}

void TransportSet::require_served(const CollectiveCall& call) const {
  const Algorithm wanted = call.what.algorithm;
  if (wanted == Algorithm::automatic || members_.self.size == 1) return;
  if (p2p_) {
    if (needs_registration(wanted)) return;
    return selector_.require_served(call.what,
                                    ResolvedCall(call, members_.self.size).message_bytes);
  }
  const Algorithm only = carrier();
  if (wanted == only) return;
  throw InvalidArgument(
      fmt::format("{}: expected an algorithm that serves the call, but got {}: "
                  "{} carries all operations of this group",
                  gantry::name(call.what.kind), gantry::name(wanted), gantry::name(only)));
}

void TransportSet::require_registered(const CollectiveCall& call) const {
  if (!p2p_ || !needs_registration(call.what.algorithm)) return;
  Descriptor what = call.what;
  what.window_offset = p2p_->window_offset_of(call);
  selector_.require_served(what, ResolvedCall(call, members_.self.size).message_bytes);
}

ResolvedCall TransportSet::resolve(const CollectiveCall& call) {
  const int size = members_.self.size;
  if (p2p_) {
    // Ranks that differ in a list leave it after its first transfer, but their hosts do not know:
    // none may wait for another one. Bodies of conditions cannot have NCCL's kernels.
    const bool stays = call.in_condition || (call.continues && last_collective_ == p2p_.get());
    ResolvedCall resolved = resolve_over_peers(call, size, selector_, *p2p_, stays);
    if (resolved.via == nullptr) resolved.via = nccl_.get();
    return resolved;
  }
  ResolvedCall resolved(call, size);
  resolved.via = nccl_ ? nccl_.get() : host_.get();
  resolved.choice.algorithm = carrier();
  if (!nccl_) selector_.warn_unless_forced(call.what, resolved.message_bytes, carrier());
  return resolved;
}

Algorithm TransportSet::carrier() const {
  return nccl_ || (host_ && host_->uses_nccl()) ? Algorithm::nccl : Algorithm::host;
}

Transport& TransportSet::open(const ResolvedCall& call) {
  if (call.via == nullptr && nccl_ == nullptr) start_nccl(call);
  Transport& via = call.via != nullptr ? *call.via : *nccl_;
  if (!is_message(call.what.kind)) last_collective_ = &via;
  return via;
}

GroupTimeout::CallScope TransportSet::call_scope(const Transport& via,
                                                 const CollectiveCall& call) const {
  const bool blocks = &via == host_.get();
  return {members_.timeout, blocks ? call.timeout : std::chrono::milliseconds(0)};
}

// Starting NCCL waits for all ranks, so calls are compared first.
void TransportSet::start_nccl(const ResolvedCall& call) {
  ControlSegment* const control = members_.control.get();
  members_.bootstrap->set_purpose(gantry::name(call.what.kind));
  if (control != nullptr) {
    const auto number = static_cast<std::uint64_t>(call.what.call);
    control->rendezvous(HostCall::none, number, call.timeout);
    control->verify(number);
  }
  // A call may want NCCL in a group whose table has none.
  if (!agree_on_nccl()) selector_.require_served(call.what, call.message_bytes);
  nccl_ = make_nccl_transport(members_.self, *members_.bootstrap, control,
                              /*reports_progress=*/false, members_.timeout);
}

std::string_view TransportSet::name() const {
  if (p2p_) return "p2p";
  if (nccl_ || host_) return gantry::name(carrier());
  return "none";
}

void TransportSet::add_memory(const Storage& storage) {
  if (p2p_) return p2p_->add_memory(storage);
  registrations_.add(*members_.bootstrap, storage);
}

void TransportSet::remove_memory(const Storage& storage, const Stream& stream) {
  if (p2p_) return p2p_->remove_memory(storage, stream);
  registrations_.remove(storage);
}

bool TransportSet::is_broken() const noexcept {
  try {
    require_intact();
    return false;
  } catch (...) {
    return true;
  }
}

void TransportSet::require_intact() const {
  const std::lock_guard lock(clearing_);
  if (nccl_) nccl_->require_intact();
  if (host_) host_->require_intact();
}

bool TransportSet::is_waiting() const {
  return (p2p_ && p2p_->is_waiting()) || (nccl_ && nccl_->is_waiting()) ||
         (host_ && host_->is_waiting());
}

void TransportSet::abort() noexcept {
  if (!members_.control) abort_nccl();  // which the loss callback of the control segment does
  abort_links();
}

void TransportSet::abort_links() noexcept {
  if (host_) host_->abort();
}

void TransportSet::abort_nccl() noexcept {
  if (nccl_) nccl_->abort();
  if (host_ && host_->uses_nccl()) host_->abort();
}

void TransportSet::close() noexcept {
  // An abort must not run concurrently with CUDA's shutdown.
  if (nccl_) nccl_->await_abort();
  if (p2p_) p2p_->close();
  if (host_) host_->close();
  if (host_) host_->await_abort();
}

void TransportSet::clear() noexcept {
  // They end without the lock, as their end may query the group's faults.
  std::unique_ptr<Transport> ended[3];
  {
    const std::lock_guard lock(clearing_);
    ended[0] = std::move(p2p_);
    ended[1] = std::move(nccl_);
    ended[2] = std::move(host_);
  }
  for (std::unique_ptr<Transport>& one : ended) one.reset();
}

}  // namespace gantry
