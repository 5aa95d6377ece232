#include "collectives/communicator/members.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "collectives/peers/probe.hpp"
#include "core/env/settings.hpp"
#include "memory/policy/backend.hpp"

namespace gantry {

namespace {

constexpr std::int64_t kDefaultTimeoutSeconds = 600;

std::string own_host_name() {
  char buffer[72] = {};
  gethostname(buffer, sizeof buffer - 1);
  return buffer;
}

// Not 0.
std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random() | 1;
}

// Differs between processes, but for a process and its forks, whose pids differ.
std::uint64_t own_address_space() {
  static const std::uint64_t drawn = random_number();
  return drawn;
}

}  // namespace

std::chrono::milliseconds collective_timeout() {
  return std::chrono::seconds(env::kCollTimeout.get().value_or(kDefaultTimeoutSeconds));
}

Members::Members(GroupSeed seed)
    : identity(std::move(seed.identity)),
      self{identity.rank, identity.world_size, seed.device},
      name(std::move(seed.name)),
      is_named(!seed.label.empty()),
      label(is_named ? std::move(seed.label) : name),
      timeout(seed.timeout.value_or(GroupTimeout(collective_timeout()))),
      member(seed.member != 0 ? seed.member : random_number()),
      job_group(seed.job_group.job ? std::move(seed.job_group) : seed.bootstrap->job_group()),
      bootstrap(std::move(seed.bootstrap)) {
  (void)logging::enabled(logging::Level::info);  // throws if GANTRY_LOG is invalid
  bootstrap->set_purpose(seed.maker);
}

void Members::exchange_facts(const Selector& selector) {
  RankFacts mine;
  const DeviceProperties& properties = device_properties(self.device);
  const std::string boot = boot_id();
  const std::string host_name = own_host_name();
  mine.boot = boot;
  mine.host = host_name;
  mine.device = properties.name;
  mine.uuid = properties.uuid;
  mine.pid = getpid();
  mine.platform = static_cast<std::int32_t>(platform());
  mine.algorithm = static_cast<std::int32_t>(selector.forced()) +
                   (selector.is_p2p_only() ? 100 : 0) +
                   1000 * static_cast<std::int32_t>(peer_mode());
  mine.table = selector.hash();
  mine.address_space = env::kCollOpen.get() ? own_address_space() : 0;
  mine.member = member;
  ranks.emplace(bootstrap->all_gather(mine.bytes()), "Communicator::" + name,
                is_named ? label : std::string());
  int local_rank = 0;
  int local_size = 0;
  share_addresses = mine.address_space != 0;
  for (int rank = 0; rank < ranks->size(); ++rank) {
    const RankFacts facts = ranks->facts(rank);
    if (facts.platform != mine.platform || facts.algorithm != mine.algorithm ||
        facts.table != mine.table) {
      throw InvalidArgument(
          fmt::format("Communicator::{}: expected one platform, one GANTRY_COLL_ALGO, one "
                      "GANTRY_P2P and one table of "
                      "algorithms on all ranks, but rank {} differs from rank {}",
                      name, rank, self.rank));
    }
    const bool here = facts.boot == mine.boot;
    are_on_one_machine = are_on_one_machine && here;
    share_addresses = share_addresses && here && facts.pid == mine.pid &&
                      facts.address_space == mine.address_space;
    local_size += here ? 1 : 0;
    local_rank += here && rank < self.rank ? 1 : 0;
  }
  if (name == "world") return;  // The launcher has logged it.
  identity.local_rank = local_rank;
  identity.local_size = local_size;
}

void Members::open_control() {
  if (!are_on_one_machine) return;
  control = std::make_unique<ControlSegment>(*bootstrap, self.rank, self.size, timeout, label);
  if (is_named) control->name_in_errors();
  control->describe_device(ranks->description(self.rank), device_properties(self.device).uuid);
  // Backends of the driver ask it for their figures, which a watchdog must not.
  const memory::Backend* backend = memory::find_backend(memory::allocator_backend());
  if (backend == nullptr || !backend->is_of_driver) {
    control->publish_memory([device = self.device] {
      const memory::Stats stats = memory::stats(device);
      return MemoryUse{stats.allocated_bytes.all.current, stats.reserved_bytes.all.current};
    });
  }
  if (auto moved = bootstrap->move_to(*control)) {
    first_bootstrap = std::exchange(bootstrap, std::move(moved));
  }
}

JobGroup Members::job_group_of(const std::vector<int>& ranks) const {
  JobGroup group{job_group.job, {}};
  if (!group.job) return group;
  for (const int rank : ranks) {
    group.members.push_back(job_group.members[static_cast<std::size_t>(rank)]);
  }
  return group;
}

GroupSeed Members::subgroup(const std::vector<int>& ranks, const std::string& group,
                            std::unique_ptr<Bootstrap> boot, const std::string& maker) const {
  ProcessIdentity who = identity;
  who.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), self.rank) - ranks.begin());
  who.world_size = static_cast<int>(ranks.size());
  return {.identity = std::move(who),
          .device = self.device,
          .bootstrap = std::move(boot),
          .name = group,
          .maker = maker,
          .job_group = job_group_of(ranks),
          .timeout = timeout.copy(),
          .member = member};
}

}  // namespace gantry
