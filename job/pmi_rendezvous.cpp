#include "job/pmi_rendezvous.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include <gantry/core/env.hpp>

#include "core/files/own_folder.hpp"
#include "core/processes/process_stamp.hpp"

namespace gantry {

namespace {

// How many ranks the launcher has started on this machine.
constexpr const char* kLocalSizes[] = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE",
                                       "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr int kMostDescriptor = 1 << 20;

// The process that made the socket PMI_FD.
std::optional<ProcessStamp> maker_of_socket() {
  const auto descriptor = env::get_int("PMI_FD", 0, kMostDescriptor);
  if (!descriptor) return std::nullopt;
  ucred maker{};
  socklen_t bytes = sizeof maker;
  if (getsockopt(static_cast<int>(*descriptor), SOL_SOCKET, SO_PEERCRED, &maker, &bytes) != 0) {
    return std::nullopt;
  }
  // 0: a process of another pid namespace.
  if (maker.pid <= 0 || maker.pid == getpid()) return std::nullopt;
  return find_process(maker.pid);
}

std::optional<ProcessStamp> parent() {
  const pid_t pid = getppid();
  return pid > 1 ? find_process(pid) : std::nullopt;
}

}  // namespace

std::string pmi_rendezvous(const ProcessIdentity& identity, std::string& problem) {
  if (std::ranges::none_of(kLocalSizes,
                           [](const char* name) { return env::get(name).has_value(); })) {
    problem = "the launcher does not say how many of the ranks are on this machine";
    return {};
  }
  if (identity.local_size != identity.world_size) {
    problem = "the ranks are on several machines";
    return {};
  }
  std::optional<ProcessStamp> launcher = maker_of_socket();
  if (!launcher) launcher = parent();
  if (!launcher) {
    problem = "the launcher's process, which would name the job, cannot be found";
    return {};
  }
  return "unix:" + own_socket_path(fmt::format("pmi-{}-{}", launcher->pid, launcher->start_time));
}

}  // namespace gantry
