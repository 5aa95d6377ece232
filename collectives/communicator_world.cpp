#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/communicator_impl.hpp"
#include "collectives/nccl_clique.hpp"

namespace gantry {

namespace {

constexpr std::int64_t kDefaultTimeoutSeconds = 600;
// How long a rank that ends stays for the others to finish reading its memory.
constexpr auto kFinishPatience = std::chrono::seconds(10);
// From this size on NCCL's rings beat the staged two-step sum, if the caller gives up on order.
constexpr std::int64_t kNcclSumBytes = std::int64_t{32} << 20;

// Facts that every rank tells the others first; fixed-width text, zero-filled.
struct Facts {
  char version[16] = "gantry-1";
  char boot[48] = {};
  char host[72] = {};
  char device[64] = {};
  char uuid[64] = {};
  std::int32_t pid = 0;
  std::int32_t platform = 0;
  std::int32_t algorithm = 0;
};

void put(char* field, std::size_t size, std::string_view text) {
  std::memcpy(field, text.data(), std::min(size - 1, text.size()));
}

std::string host_name() {
  char buffer[72] = {};
  gethostname(buffer, sizeof buffer - 1);
  return buffer;
}

// One visible device: that one. Else the one that the launcher named, else by local rank.
Device choose_device(const ProcessIdentity& identity) {
  init();
  const int count = device_count();
  if (count == 1) return Device::cuda(0);
  if (const auto named = env::get_int("GANTRY_DEVICE", 0, 1023)) {
    if (*named >= count) {
      throw InvalidArgument(
          fmt::format("Communicator::world: GANTRY_DEVICE is {}, but rank {} sees only {} devices",
                      *named, identity.rank, count));
    }
    return Device::cuda(static_cast<int>(*named));
  }
  if (identity.local_rank >= count) {
    throw InvalidArgument(fmt::format(
        "Communicator::world: local rank {} needs a device of its own, but this node shows only {} "
        "device(s); start at most {} ranks per node",
        identity.local_rank, count, count));
  }
  return Device::cuda(identity.local_rank);
}

std::chrono::milliseconds timeout() {
  return std::chrono::seconds(
      env::get_int("GANTRY_COLL_TIMEOUT", 1, 1'000'000).value_or(kDefaultTimeoutSeconds));
}

}  // namespace

Communicator::Impl::Impl(ProcessIdentity who) : identity(std::move(who)) {
  const std::string wanted = env::get("GANTRY_COLL_ALGO").value_or("auto");
  if (wanted == "p2p") {
    algorithm_ = Algorithm::p2p;
  } else if (wanted == "nccl") {
    algorithm_ = Algorithm::nccl;
  } else if (wanted != "auto" && !wanted.empty()) {
    throw InvalidArgument(
        fmt::format("GANTRY_COLL_ALGO: expected auto, p2p or nccl, but got '{}'", wanted));
  }
  if (algorithm_ == Algorithm::nccl && (!has_nccl() || platform() != Platform::cuda)) {
    throw NotSupported(
        "GANTRY_COLL_ALGO: nccl needs real GPUs and a build with NCCL; use auto or p2p");
  }
  membership = {identity.rank, identity.world_size, choose_device(identity)};
  set_device(membership.device);
  bootstrap = make_bootstrap(identity, timeout());

  Facts mine;
  const DeviceProperties& properties = device_properties(membership.device);
  put(mine.boot, sizeof mine.boot, boot_id());
  put(mine.host, sizeof mine.host, host_name());
  put(mine.device, sizeof mine.device, properties.name);
  put(mine.uuid, sizeof mine.uuid, properties.uuid);
  mine.pid = getpid();
  mine.platform = static_cast<std::int32_t>(platform());
  mine.algorithm = static_cast<std::int32_t>(algorithm_);
  const std::vector<std::string> all =
      bootstrap->all_gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine));

  bool one_machine = true;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Facts facts;
    if (all[rank].size() != sizeof facts) {
      throw InvalidArgument(
          fmt::format("Communicator::world: rank {} runs another version of gantry", rank));
    }
    std::memcpy(&facts, all[rank].data(), sizeof facts);
    if (facts.platform != mine.platform || facts.algorithm != mine.algorithm) {
      throw InvalidArgument(fmt::format(
          "Communicator::world: expected one platform and one GANTRY_COLL_ALGO on all ranks, but "
          "rank {} differs from rank {}",
          rank, identity.rank));
    }
    one_machine = one_machine && std::strcmp(facts.boot, mine.boot) == 0;
    device_map.push_back(fmt::format("rank {}: {} pid {} {} {}", rank, facts.host, facts.pid,
                                     facts.device, facts.uuid));
  }
  if (membership.size > 1) {
    if (one_machine) {
      control =
          std::make_unique<ControlBlock>(*bootstrap, membership.rank, membership.size, timeout());
      if (algorithm_ != Algorithm::nccl) p2p = make_p2p_transport(membership, *bootstrap, *control);
    }
    if (p2p == nullptr) {
      nccl = make_nccl_transport(membership, *bootstrap, control.get());
    }
  }
  if (logging::enabled(logging::Level::info)) {
    logging::info(fmt::format("rank {} of {} on {} ({}), started by {}, transport {}",
                              membership.rank, membership.size, membership.device.str(),
                              properties.name, identity.source,
                              p2p ? "p2p" : (nccl ? "nccl" : "none")));
  }
}

Transport& Communicator::Impl::transport_for(const Descriptor& call, std::int64_t bytes) {
  if (p2p == nullptr) return *nccl;
  const bool order_matters = is_floating_point(call.dtype) && call.reproducible != 0;
  const bool reduces =
      call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::reduce_scatter;
  if (algorithm_ == Algorithm::automatic && reduces && !order_matters && bytes >= kNcclSumBytes &&
      platform() == Platform::cuda && has_nccl() && nccl_supports(call.op, call.dtype)) {
    if (nccl == nullptr) {
      // Starting NCCL waits for all ranks, so calls are compared first.
      control->describe(call);
      control->await(control->announce());
      control->verify(call.sequence);
      nccl = make_nccl_transport(membership, *bootstrap, control.get());
    }
    return *nccl;
  }
  return *p2p;
}

void Communicator::Impl::finish() noexcept {
  const std::lock_guard lock(mutex);
  if (finished_) return;
  finished_ = true;
  try {
    // After a loss the device may wait for an event that nobody will reach.
    const bool lost = control && control->broken();
    if (!in_bad_fork() && !lost) synchronize(membership.device);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving the communicator: {}", error.what()));
  }
  if (control) control->finish(kFinishPatience);
  bootstrap->leave();
}

Communicator Communicator::world() {
  static std::mutex mutex;
  // Never destroyed: device memory must not be given back from a static destructor. What peers need
  // is settled by the exit handler.
  static std::shared_ptr<Impl>* world = nullptr;
  const std::lock_guard lock(mutex);
  if (world == nullptr) {
    world = new std::shared_ptr<Impl>(std::make_shared<Impl>(detect_process_identity()));
    std::atexit([] { (*world)->finish(); });
  } else {
    set_device((*world)->membership.device);
  }
  return Communicator(*world);
}

}  // namespace gantry
