#include "collectives/communicator/impl.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/communicator/pending_signals.hpp"
#include "collectives/peers/probe.hpp"
#include "core/env/settings.hpp"
#include "device/sync_debug_driver.hpp"
#include "job/flight_file.hpp"
#include "streams/graphs/condition.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "streams/stream_clock.hpp"

namespace gantry {

namespace {

constexpr std::int64_t kDefaultTimeoutSeconds = 600;
// How long a finishing rank waits for the others to stop using its memory.
constexpr auto kFinishTimeout = std::chrono::seconds(10);

std::string own_host_name() {
  char buffer[72] = {};
  gethostname(buffer, sizeof buffer - 1);
  return buffer;
}

}  // namespace

std::chrono::milliseconds collective_timeout() {
  return std::chrono::seconds(env::kCollTimeout.get().value_or(kDefaultTimeoutSeconds));
}

Communicator::Impl::Impl(Seed seed)
    : identity(std::move(seed.identity)),
      membership{identity.rank, identity.world_size, seed.device},
      name(std::move(seed.name)),
      job_group(seed.job_group.job ? std::move(seed.job_group) : seed.bootstrap->job_group()),
      bootstrap(std::move(seed.bootstrap)),
      registrations(membership.rank, membership.device, /*opens=*/false),
      timeout_(collective_timeout()) {
  const bool logs = logging::enabled(logging::Level::info);  // throws if GANTRY_LOG is invalid
  bootstrap->set_purpose(seed.maker);
  const DeviceProperties& properties = device_properties(membership.device);
  selector_ = Selector::load(membership.size, properties.name);
  if (platform() != Platform::cuda) selector_.forbid_nccl("it needs real GPUs");
  if (membership.rank == 0) selector_.warn_ignored();
  // A wrong GANTRY_ALLOC_CONF throws here; in the probe it would look like
  // links that do not work.
  (void)memory::allocator(membership.device);
  exchange_facts();
  if (membership.size > 1) make_transports();
  add_fault_source(*this);
  listed_ = true;
  withdraw_note();  // the note of a lost group
  if (logs) {
    logging::info(fmt::format("{}: rank {} of {} on {} ({}), started by {}, transport {}", name,
                              membership.rank, membership.size, membership.device.str(),
                              properties.name, identity.source,
                              p2p ? "p2p" : (nccl ? "nccl" : (host ? "host" : "none"))));
  }
}

Communicator::Impl::~Impl() {
  if (sanitizer::is_on()) sanitizer::forget_queue(this);
  finish();
  if (listed_) remove_fault_source(*this);
}

void Communicator::Impl::exchange_facts() {
  RankFacts mine;
  const DeviceProperties& properties = device_properties(membership.device);
  const std::string boot = boot_id();
  const std::string host_name = own_host_name();
  mine.boot = boot;
  mine.host = host_name;
  mine.device = properties.name;
  mine.uuid = properties.uuid;
  mine.pid = getpid();
  mine.platform = static_cast<std::int32_t>(platform());
  mine.algorithm = static_cast<std::int32_t>(selector_.forced()) +
                   (selector_.is_p2p_only() ? 100 : 0) +
                   1000 * static_cast<std::int32_t>(peer_mode());
  mine.table = selector_.hash();
  ranks.emplace(bootstrap->all_gather(mine.bytes()), "Communicator::" + name);
  int local_rank = 0;
  int local_size = 0;
  for (int rank = 0; rank < ranks->size(); ++rank) {
    const RankFacts facts = ranks->facts(rank);
    if (facts.platform != mine.platform || facts.algorithm != mine.algorithm ||
        facts.table != mine.table) {
      throw InvalidArgument(
          fmt::format("Communicator::{}: expected one platform, one GANTRY_COLL_ALGO, one "
                      "GANTRY_P2P and one table of "
                      "algorithms on all ranks, but rank {} differs from rank {}",
                      name, rank, membership.rank));
    }
    const bool here = facts.boot == mine.boot;
    one_machine_ = one_machine_ && here;
    local_size += here ? 1 : 0;
    local_rank += here && rank < membership.rank ? 1 : 0;
  }
  if (name == "world") return;  // The launcher has logged it.
  identity.local_rank = local_rank;
  identity.local_size = local_size;
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::subgroup(const std::vector<int>& ranks,
                                                                 const std::string& group,
                                                                 std::unique_ptr<Bootstrap> boot,
                                                                 const std::string& maker) const {
  ProcessIdentity who = identity;
  who.rank =
      static_cast<int>(std::find(ranks.begin(), ranks.end(), membership.rank) - ranks.begin());
  who.world_size = static_cast<int>(ranks.size());
  JobGroup members{job_group.job, {}};
  for (const int rank : ranks) {
    if (members.job) members.members.push_back(job_group.members[static_cast<std::size_t>(rank)]);
  }
  return std::make_shared<Impl>(Seed{.identity = std::move(who),
                                     .device = membership.device,
                                     .bootstrap = std::move(boot),
                                     .name = group,
                                     .maker = maker,
                                     .job_group = std::move(members)});
}

void Communicator::Impl::require_ready(CollectiveKind kind, const Stream& stream) {
  if (finished_) {
    throw Error(fmt::format("{}: expected a communicator in use, but the process is at its exit",
                            gantry::name(kind)));
  }
  if (is_suspended_) {
    throw InvalidArgument(
        fmt::format("{}: expected a communicator in use, but "
                    "got a suspended one; call resume()",
                    gantry::name(kind)));
  }
  if (is_in_condition(stream)) {
    throw CaptureError(
        fmt::format("{}: expected a stream outside of graph_if and "
                    "graph_while, since every rank has to run "
                    "the operation, but got one inside",
                    gantry::name(kind)));
  }
  raise_next_failure();
  if (!control) return;
  // An earlier mismatch of all ranks is not thrown here: ranks that have not
  // detected it yet make this call, so this rank must make it too.
  const auto reported = control->fault();
  const bool is_fatal = reported && (control->broken() || flight::is_message(reported->call) ||
                                     reported->fault() == OperationFault::overlap);
  if (is_fatal) {
    if (const auto failed = take_fault()) faults_.raise(*failed);
  }
  require_intact();
}

template <class Submit>
void Communicator::Impl::guarded(const Descriptor& what, Submit submit) {
  try {
    submit();
  } catch (const CollectiveMismatch& error) {
    if (control) {
      control->report_mismatch(error);
    } else {
      report_to_launcher({.kind = FailureKind::mismatch, .message = error.what()});
    }
    throw;
  } catch (const CaptureError&) {
    throw;  // Every rank throws the same error.
  } catch (const PeerLostError& error) {
    if (control) {
      loss_is_known_ = true;
      control->diagnose_loss(error.rank());  // Note [One diagnosis]
      control->abort();
    }
    throw;
  } catch (const TimeoutError& error) {
    if (control) {
      loss_is_known_ = true;
      control->diagnose_timeout(what, error);
    }
    throw;
  } catch (...) {
    // The other ranks wait for this rank's part of the operation.
    if (control) control->abort();
    throw;
  }
}

End Communicator::Impl::run(CollectiveCall& call, const Stream& stream) {
  require_ready(call.what.kind, stream);
  // Ranks send and receive independently, so messages are numbered separately.
  const CollectiveKind kind = call.what.kind;
  if (!call.continues) {
    call.what.call =
        static_cast<std::int64_t>(is_message(kind) ? flight::kMessageBit | ++messages_ : ++calls_);
  }
  // The root's array is in its place already.
  if (kind == CollectiveKind::broadcast && call.out == nullptr) {
    call.out = const_cast<void*>(call.in);
  }
  End end;
  guarded(call.what, [&] {
    const ResolvedCall resolved = resolve(call);
    Transport& transport = begin(resolved, stream);
    last_transport_ = &transport;
    end = transport.run(resolved, stream);
  });
  return end;
}

End Communicator::Impl::run_together(std::span<CollectiveCall> calls, const Stream& stream) {
  require_ready(calls.front().what.kind, stream);
  for (CollectiveCall& call : calls) {
    call.what.call = static_cast<std::int64_t>(flight::kMessageBit | ++messages_);
  }
  End end;
  guarded(calls.front().what, [&] {
    std::vector<ResolvedCall> resolved;
    resolved.reserve(calls.size());
    for (const CollectiveCall& call : calls) resolved.push_back(resolve(call));
    for (ResolvedCall& call : resolved) call.via = &begin(call, stream, /*is_grouped=*/true);
    Transport* const first = resolved.front().via;
    const auto uses_first = [&](const ResolvedCall& call) { return call.via == first; };
    if (std::ranges::all_of(resolved, uses_first)) {
      end = first->run_together(resolved, stream);
      return;
    }
    // Both ends of a message choose the same transport, but the messages use
    // p2p and NCCL.
    const auto others = std::ranges::stable_partition(resolved, uses_first);
    const Stream side = Stream::from_pool(membership.device);
    side.wait(stream);
    const End one = first->run_together({resolved.begin(), others.begin()}, stream);
    const StreamGuard guard(side);
    const End other = others.front().via->run_together(others, side);
    stream.wait(side);
    end.reports_losses = one.reports_losses && other.reports_losses;
  });
  return end;
}

void Communicator::Impl::rendezvous(HostCall call) {
  bootstrap->set_purpose(gantry::name(call));
  if (!control) return;
  require_intact();
  try {
    control->rendezvous(call, calls_);
  } catch (const CollectiveMismatch&) {
    // After a mismatch between ranks that all came, none waits over links, and
    // the group is intact.
    if (host && control->broken()) host->abort();
    throw;
  } catch (...) {
    if (host)
      host->abort();  // ranks that wait over links do not read the control
                      // segment
    throw;
  }
}

std::optional<std::uint64_t> Communicator::Impl::take_fault() {
  if (!control->has_fault()) return std::nullopt;
  auto fault = control->take_fault();
  if (!fault) return std::nullopt;
  const std::uint64_t call = fault->call;
  bool is_news = true;
  if (control->broken()) {
    is_news = !loss_is_known_.exchange(true);
    // The device reports only the first fault. Messages have their own numbers.
    first_lost_.lower(flight::is_message(call) ? 0 : call);
  } else {
    first_mismatch_.lower(call);
  }
  faults_.add(std::move(*fault), is_news);
  return call;
}

void Communicator::Impl::raise_fault() {
  (void)take_fault();
  faults_.raise_unreported();
}

void Communicator::Impl::check(std::uint64_t call, bool pending) {
  if (!control) {
    if (nccl) nccl->require_intact();
    return;
  }
  (void)take_fault();
  faults_.raise(call);
  faults_.raise_unreported();
  if (pending || call >= first_lost_.get()) require_intact();
  if (pending || flight::is_message(call)) return;
  // A device reports no second mismatch before its first one is taken, and none
  // of blocks between other ranks.
  if (call > first_mismatch_.get() || control->has_block_counts(call)) control->verify(call);
}

void Communicator::Impl::require_intact() {
  if (!control->broken()) return;
  loss_is_known_ = true;
  control->require_intact();
}

void Communicator::Impl::abort() noexcept {
  if (control) {
    control->abort();  // its loss callback aborts NCCL
  } else if (nccl) {
    nccl->abort();
  }
  if (host) host->abort();
}

void Communicator::Impl::finish() noexcept {
  if (in_bad_fork()) return;  // a thread of the parent may hold the mutex
  const std::lock_guard lock(mutex);
  if (finished_) return;
  finished_ = true;
  try {
    // Kernels that wait for an absent rank must not block this process. Graph
    // launches are visible only once their kernels wait.
    if (control) control->abort_after(kFinishTimeout);
    const auto deadline = std::chrono::steady_clock::now() + kFinishTimeout;
    const auto is_waiting = [&] {
      return (p2p && p2p->is_waiting()) || (nccl && nccl->is_waiting()) ||
             std::ranges::any_of(window_signals, [](const auto& s) { return s->is_waiting(); });
    };
    const auto is_broken = [&] { return control && control->broken(); };
    while (!is_broken() && is_waiting() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // Check again, after the other ranks were signalled.
    const bool gives_up = !is_broken() && is_waiting();
    if (control && gives_up) control->abort();
    // A graph may have launched NCCL kernels, which only this ends.
    if (nccl && (gives_up || is_broken())) nccl->abort();
    const BlockingIsNeeded needed;
    if (may_synchronize_devices()) {
      synchronize(membership.device);
    } else {
      // A synchronization would spoil the capture of a stream.
      while (!is_device_idle(membership.device.index) &&
             std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving the communicator: {}", error.what()));
  }
  window_signals.clear();
  // An abort must not run concurrently with CUDA's shutdown.
  if (nccl) nccl->await_abort();
  if (p2p) p2p->close();
  if (host) host->close();
  if (control) control->finish(kFinishTimeout);
  bootstrap->leave();
}

}  // namespace gantry
