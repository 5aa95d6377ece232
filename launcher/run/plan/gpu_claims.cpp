#include "launcher/run/plan/gpu_claims.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/own_folder.hpp"

namespace gantry::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// A choice takes some milliseconds.
constexpr std::chrono::seconds kChoiceDeadline{10};
constexpr std::chrono::seconds kShortDeadline{1};
constexpr std::chrono::milliseconds kLookAgain{10};

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

UniqueFd open_socket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
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

constexpr const char* kLockName = "gpu-choice";

// The lock's file, which only this user can open.
UniqueFd open_lock() {
  prepare_own_folder();
  const std::string path = own_socket_path(kLockName);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) throw Error(fmt::format("failed to open {}: {}", path, std::strerror(errno)));
  return fd;
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

ChoiceTurn::ChoiceTurn(std::chrono::milliseconds deadline) : lock_(open_lock()) {
  const Clock::time_point end = Clock::now() + deadline;
  while (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      throw Error(fmt::format("failed to lock the choice of GPUs: {}", std::strerror(errno)));
    }
    if (Clock::now() >= end) {
      throw Error(
          fmt::format("another glaunch has been choosing GPUs for {:g} s; look for one that is "
                      "stopped",
                      static_cast<double>(deadline.count()) / 1e3));
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

namespace {

// A plan among the GPUs that no other glaunch has claimed. `of_others`: the number of claimed ones.
Plan claim_idle_gpus(const JobOptions& options, const Machine& machine,
                     const Environment& environment, GpuClaims& claims, std::size_t& of_others) {
  std::vector<std::string> all;
  for (const machine::Topology::Gpu& gpu : machine.inventory.machine.gpus) all.push_back(gpu.uuid);
  const std::vector<std::string> claimed = claims.claim(all);
  of_others = claimed.size();
  Machine unclaimed = machine;
  for (machine::Topology::Gpu& gpu : unclaimed.inventory.machine.gpus) {
    const bool is_claimed = std::find(claimed.begin(), claimed.end(), gpu.uuid) != claimed.end();
    // Its ranks may not have begun to use it.
    if (is_claimed && gpu.processes) gpu.processes.value = std::max(1, *gpu.processes);
  }
  Plan plan = make_plan(options, unclaimed, environment);
  claims.keep(uuids_of(plan));
  return plan;
}

}  // namespace

Plan make_claimed_plan(const JobOptions& options, const Machine& machine,
                       const Environment& environment, GpuClaims& claims) {
  const machine::Topology& here = machine.inventory.machine;
  if (options.placement.cpu_only || here.gpu_source != machine::FactSource::nvml) {
    return make_plan(options, machine, environment);
  }
  if (options.placement.choice.gpus != machine::GpuChoice::idle) {
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
  const Clock::time_point end = Clock::now() + kShortDeadline;
  for (;;) {
    std::size_t of_others = 0;
    try {
      return claim_idle_gpus(options, machine, environment, claims, of_others);
    } catch (const InvalidArgument& error) {
      claims.keep({});
      if (of_others == 0) throw;
      // Another user's glaunch may be choosing, and soon keeps fewer.
      if (Clock::now() >= end) {
        throw InvalidArgument(
            fmt::format("{}; jobs of glaunch have {} of them", error.what(), of_others));
      }
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace gantry::launcher
