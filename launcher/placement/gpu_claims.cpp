#include "launcher/placement/gpu_claims.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// A choice takes some milliseconds.
constexpr std::chrono::seconds kChoiceDeadline{10};
constexpr std::chrono::seconds kShortDeadline{1};

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

// An abstract name: no file, and gone with the process.
Address address_of(const std::string& name) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof address.value.sun_path - 1);
  std::memcpy(address.value.sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

UniqueFd open_socket(int flags = 0) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd) throw Error(fmt::format("failed to open a socket: {}", std::strerror(errno)));
  return fd;
}

// The socket with this name, or none if another process has it.
UniqueFd bind_name(const std::string& name) {
  UniqueFd fd = open_socket();
  const Address address = address_of(name);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.value);
  if (bind(fd.get(), raw, address.length) == 0) return fd;
  if (errno == EADDRINUSE) return {};
  throw Error(fmt::format("failed to claim '{}': {}", name, std::strerror(errno)));
}

constexpr const char* kChoiceName = "gantry-gpu-choice";

// Waits until the process that listens at the name of choices ends its turn.
void wait_for_turn(Clock::time_point end) {
  const UniqueFd fd = open_socket(SOCK_NONBLOCK);
  const Address address = address_of(kChoiceName);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.value);
  const bool is_connected = connect(fd.get(), raw, address.length) == 0;
  // Refused: it has bound the name and does not listen yet, or its turn is over. Again: too many
  // wait. Both pass.
  if (!is_connected && errno != ECONNREFUSED && errno != EAGAIN) {
    throw Error(fmt::format("failed to wait for another glaunch: {}", std::strerror(errno)));
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  pollfd entry{is_connected ? fd.get() : -1, POLLIN, 0};
  poll(&entry, 1,
       static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, is_connected ? 10'000 : 1)));
}

std::vector<std::string> uuids_of(const Plan& plan) {
  std::vector<std::string> uuids;
  for (const RankPlan& rank : plan.ranks) {
    if (!rank.device_uuid.empty()) uuids.push_back(rank.device_uuid);
  }
  return uuids;
}

}  // namespace

std::vector<std::string> GpuClaims::claim(const std::vector<std::string>& uuids) {
  std::vector<std::string> of_others;
  for (const std::string& uuid : uuids) {
    if (held_.contains(uuid)) continue;
    if (UniqueFd fd = bind_name("gantry-gpu-" + uuid)) {
      held_.emplace(uuid, std::move(fd));
    } else {
      of_others.push_back(uuid);
    }
  }
  return of_others;
}

void GpuClaims::keep(const std::vector<std::string>& uuids) {
  std::erase_if(held_, [&](const auto& held) {
    return std::find(uuids.begin(), uuids.end(), held.first) == uuids.end();
  });
}

ChoiceTurn::ChoiceTurn(std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  while (!(listener_ = bind_name(kChoiceName))) {
    if (Clock::now() >= end) {
      throw Error(
          fmt::format("another glaunch has been choosing GPUs for {:g} s; look for one that is "
                      "stopped",
                      static_cast<double>(deadline.count()) / 1e3));
    }
    wait_for_turn(end);
  }
  listen(listener_.get(), SOMAXCONN);
}

Plan make_claimed_plan(const Options& options, const Machine& machine,
                       const Environment& environment, GpuClaims& claims) {
  const Topology& here = machine.inventory.machine;
  if (options.cpu_only || here.gpu_source != FactSource::nvml) {
    return make_plan(options, machine, environment);
  }
  if (options.placement.gpus != GpuChoice::idle) {
    Plan plan = make_plan(options, machine, environment);
    // Jobs may share GPUs that their users named: what others have claimed is no error.
    try {
      const ChoiceTurn turn(kShortDeadline);
      (void)claims.claim(uuids_of(plan));
    } catch (const Error& error) {
      plan.warnings.push_back(
          fmt::format("{}; --gpus idle may take the GPUs of this job", error.what()));
    }
    return plan;
  }
  const ChoiceTurn turn(kChoiceDeadline);
  std::vector<std::string> all;
  for (const Topology::Gpu& gpu : here.gpus) all.push_back(gpu.uuid);
  const std::vector<std::string> of_others = claims.claim(all);
  Machine unclaimed = machine;
  for (Topology::Gpu& gpu : unclaimed.inventory.machine.gpus) {
    const bool is_claimed =
        std::find(of_others.begin(), of_others.end(), gpu.uuid) != of_others.end();
    // Its ranks may not have begun to use it.
    if (is_claimed && gpu.processes) gpu.processes.value = std::max(1, *gpu.processes);
  }
  try {
    Plan plan = make_plan(options, unclaimed, environment);
    claims.keep(uuids_of(plan));
    return plan;
  } catch (const InvalidArgument& error) {
    if (of_others.empty()) throw;
    throw InvalidArgument(
        fmt::format("{}; jobs of glaunch have {} of them", error.what(), of_others.size()));
  }
}

}  // namespace gantry::launcher
