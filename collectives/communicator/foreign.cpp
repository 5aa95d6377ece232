// Groups that no launcher describes: of ranks that the program names, or of its communicators of
// MPI and NCCL.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/bootstrap/job_entry.hpp"
#include "collectives/communicator/group_name.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/communicator/rank_devices.hpp"
#include "core/processes/process_stamp.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

constexpr const char* kConnect = "Communicator::connect";
constexpr const char* kConnectSource = "connect";
constexpr const char* kFromMpi = "Communicator(MPI_Comm)";
constexpr const char* kFromNccl = "Communicator::from_nccl";

// Throws: InvalidArgument unless `device` is one that can be used.
void require_device(Device device, const char* maker) {
  if (!device.is_cuda()) {
    throw InvalidArgument(fmt::format("{}: expected a device, but got {}", maker, device.str()));
  }
  (void)device_properties(device);
}

// A rank tells the name of its group, and for an elastic group one of these texts behind it. No
// name contains them.
constexpr std::string_view kElastic = "\nelastic";
constexpr std::string_view kServes = " and serves";

// Throws: InvalidArgument, on every rank alike, if only some of the ranks that told `texts` have an
// elastic group, or if they named their group differently.
void require_one_group(const std::vector<std::string>& texts) {
  const auto is_elastic = [](const std::string& text) { return text.find(kElastic) != text.npos; };
  const auto name_in = [](const std::string& text) {
    return escape_control_characters(text.substr(0, text.find(kElastic)));
  };
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (is_elastic(texts[rank]) != is_elastic(texts[0])) {
      throw InvalidArgument(fmt::format(
          "{}: expected all ranks or none to set ConnectOptions::elastic, but rank {} sets it and "
          "rank {} does not",
          kConnect, is_elastic(texts[0]) ? 0 : rank, is_elastic(texts[0]) ? rank : 0));
    }
    if (name_in(texts[rank]) == name_in(texts[0])) continue;
    throw InvalidArgument(
        fmt::format("{}: expected one name on all ranks, but rank 0 has '{}' and rank {} has '{}'",
                    kConnect, name_in(texts[0]), rank, name_in(texts[rank])));
  }
}

// The ranks of this machine, for a process whose launcher left no variables. Collective.
void count_local_ranks(Bootstrap& bootstrap, int rank, ProcessIdentity& identity) {
  const std::vector<std::string> boots = bootstrap.all_gather(boot_id());
  const std::string& mine = boots[static_cast<std::size_t>(rank)];
  identity.rank = rank;
  identity.world_size = static_cast<int>(boots.size());
  if (std::ranges::count(boots, mine) < std::ssize(boots)) {
    identity.node_rank = identity.node_count = -1;
  }
  identity.local_size = static_cast<int>(std::count(boots.begin(), boots.end(), mine));
  identity.local_rank = static_cast<int>(std::count(boots.begin(), boots.begin() + rank, mine));
}

}  // namespace

std::shared_ptr<Communicator::Impl> Communicator::Impl::adopt(ForeignBootstrap ranks,
                                                              ProcessIdentity identity,
                                                              Device device, const char* name,
                                                              const char* maker) {
  identity.rank = ranks.rank;
  identity.world_size = ranks.size;
  return until_left(std::make_shared<Impl>(GroupSeed{.identity = std::move(identity),
                                                     .device = device,
                                                     .bootstrap = std::move(ranks.bootstrap),
                                                     .name = name,
                                                     .maker = maker,
                                                     .label = std::move(ranks.label),
                                                     .timeout = std::move(ranks.timeout)}));
}

std::shared_ptr<Communicator::Impl> Communicator::Impl::enter(std::shared_ptr<JobConnection> job,
                                                              GroupSeed start) {
  const GroupTimeout timeout = *start.timeout;
  std::shared_ptr<Impl> made;
  if (job->terms()->replacement > 0) {
    made = join(job, start.identity, start.device);
    if (timeout.is_set()) made->members.timeout.set(timeout.of_group());
    return made;
  }
  start.bootstrap = make_store_bootstrap(job, start.identity.world_size);
  start.bootstrap->set_purpose(start.maker);
  if (timeout.is_set()) {
    start.bootstrap->set_deadline_source("ConnectOptions::timeout sets the deadline");
  }
  const std::vector<std::string> texts = start.bootstrap->all_gather(
      fmt::format("{}{}{}", start.label, kElastic, job->serves() ? kServes : ""));
  require_one_group(texts);
  job->note_server(texts[0].ends_with(kServes) ? 0 : -1);
  note_facts(*job);
  if (start.identity.source == kConnectSource) {
    count_local_ranks(*start.bootstrap, start.identity.rank, start.identity);
  }
  made = std::make_shared<Impl>(std::move(start));
  job->note_formed();
  return made;
}

Communicator Communicator::connect(const ConnectOptions& options) {
  const int lowest = options.elastic ? -1 : 0;
  if (options.size < 1 || options.rank < lowest || options.rank >= options.size) {
    throw InvalidArgument(
        fmt::format("{}: expected a rank from {} to size - 1, but got rank {} of {}", kConnect,
                    lowest, options.rank, options.size));
  }
  if (options.elastic && options.size == 1) {
    throw InvalidArgument(fmt::format(
        "{}: expected at least 2 ranks in an elastic group, but got a size of 1", kConnect));
  }
  if (options.address.empty() && options.size > 1) {
    throw InvalidArgument(fmt::format(
        "{}: expected an address where {} ranks meet (tcp:HOST:PORT, or unix:@NAME), but got none",
        kConnect, options.size));
  }
  require_group_name(options.name, kConnect);
  if (options.timeout.count() < 0) {
    throw InvalidArgument(fmt::format("{}: expected a timeout of 0 or more, but got {} ms",
                                      kConnect, options.timeout.count()));
  }
  const Device device = options.device.value_or(Device::cuda()).resolved();
  require_device(device, kConnect);
  GroupTimeout timeout = collective_timeout();
  if (options.timeout.count() > 0) timeout.set(options.timeout);
  ProcessIdentity identity;
  identity.rank = options.rank;
  identity.world_size = options.size;
  identity.source = kConnectSource;
  identity.rendezvous = options.address;
  identity.rendezvous_token = options.token;
  const StoreRole role{.serves = options.rank == 0 && (options.serves || options.server != nullptr),
                       .server = options.server,
                       .maker = kConnect,
                       .is_elastic = options.elastic,
                       .group = "connect",
                       .label = options.name};
  if (options.elastic) {
    auto job = std::make_shared<JobConnection>(identity, role, timeout.get());
    set_device(device);
    return Communicator(
        Impl::until_left(Impl::enter(std::move(job), {.identity = std::move(identity),
                                                      .device = device,
                                                      .bootstrap = nullptr,
                                                      .name = "connect",
                                                      .maker = kConnect,
                                                      .label = options.name,
                                                      .timeout = timeout})));
  }
  ForeignBootstrap ranks{.bootstrap = nullptr,
                         .rank = options.rank,
                         .size = options.size,
                         .label = options.name,
                         .timeout = timeout};
  ranks.bootstrap = options.size == 1 ? make_single_bootstrap()
                                      : make_store_bootstrap(identity, role, timeout.get());
  ranks.bootstrap->set_purpose(kConnect);
  if (timeout.is_set()) {
    ranks.bootstrap->set_deadline_source("ConnectOptions::timeout sets the deadline");
  }
  require_one_group(ranks.bootstrap->all_gather(options.name));
  count_local_ranks(*ranks.bootstrap, ranks.rank, identity);
  set_device(device);
  return Communicator(
      Impl::adopt(std::move(ranks), std::move(identity), device, "connect", kConnect));
}

Communicator Communicator::from_mpi(std::uintptr_t comm, std::optional<Device> device) {
  if (device) {
    device = device->resolved();
    require_device(*device, kFromMpi);
  }
  ForeignBootstrap ranks = make_mpi_bootstrap(comm, collective_timeout());
  ranks.bootstrap->set_purpose(kFromMpi);
  ProcessIdentity identity = detect_process_identity();
  const bool is_alone = identity.source == "single" || identity.source == "pmix";
  if (is_alone && ranks.size > 1) {
    count_local_ranks(*ranks.bootstrap, ranks.rank, identity);
  }
  report_uncaught_errors(identity.rank);
  const bool is_chosen_here = !device;
  if (!device) device = choose_device(identity, kFromMpi);
  settle_process(identity, *device);
  auto group = Impl::adopt(std::move(ranks), std::move(identity), *device, "mpi", kFromMpi);
  if (is_chosen_here) warn_shared_devices(*group->members.ranks, group->members.identity, kFromMpi);
  return Communicator(std::move(group));
}

Communicator Communicator::from_nccl(ncclComm* comm, Device device) {
  if (platform() == Platform::simulated) {
    throw NotSupported(
        fmt::format("{}: expected real GPUs, but got simulated devices, on which NCCL does not run",
                    kFromNccl));
  }
  if (comm == nullptr) {
    throw InvalidArgument(
        fmt::format("{}: expected a communicator, but got a null one", kFromNccl));
  }
  device = device.resolved();
  require_device(device, kFromNccl);
  ForeignBootstrap ranks = make_nccl_bootstrap(comm, device, collective_timeout());
  ranks.bootstrap->set_purpose(kFromNccl);
  set_device(device);
  return Communicator(
      Impl::adopt(std::move(ranks), detect_process_identity(), device, "nccl", kFromNccl));
}

}  // namespace gantry
