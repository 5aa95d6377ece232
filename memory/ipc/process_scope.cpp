#include "memory/ipc/process_scope.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <gantry/core/error.hpp>

#include "core/boot_id.hpp"
#include "core/bytes.hpp"

namespace gantry::memory {
namespace {

std::uint64_t namespace_number(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

ProcessScope this_process_scope() {
  static const std::uint64_t kMachine = fnv1a(kernel_boot_id());
  return {.process = this_process(),
          .machine = kMachine,
          .pid_namespace = namespace_number("/proc/self/ns/pid"),
          .net_namespace = namespace_number("/proc/self/ns/net"),
          .user = ::geteuid()};
}

void check_running(const ProcessStamp& exporter) {
  if (!has_ended(exporter)) return;
  throw PeerLostError(fmt::format("import_ipc: exporter process {} has ended", exporter.pid));
}

void check_reachable(const ProcessScope& exporter) {
  const ProcessScope self = this_process_scope();
  if (exporter.machine != self.machine) {
    throw NotSupported(
        "import_ipc: expected an exporter on this machine, but got one on another machine or from "
        "before a restart; send the content through a communicator");
  }
  if (exporter.pid_namespace != self.pid_namespace) {
    throw NotSupported(fmt::format(
        "import_ipc: expected an exporter in pid namespace {}, but got one in {}; start both "
        "containers with a shared one (docker run --pid=host or --pid=container:NAME)",
        self.pid_namespace, exporter.pid_namespace));
  }
  check_running(exporter.process);
  if (exporter.user != self.user) {
    throw NotSupported(fmt::format(
        "import_ipc: expected an exporter of user {}, but got user {}; start both as one user",
        self.user, exporter.user));
  }
  if (exporter.net_namespace != self.net_namespace) {
    throw NotSupported(fmt::format(
        "import_ipc: expected an exporter in network namespace {}, but got one in {}; start both "
        "containers with a shared one (docker run --network=host or --network=container:NAME)",
        self.net_namespace, exporter.net_namespace));
  }
}

}  // namespace gantry::memory
