#include "memory/ipc/origin.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include <gantry/core/error.hpp>

#include "core/boot_id.hpp"

namespace gantry::memory {
namespace {

std::uint64_t namespace_number(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

// FNV-1a of the kernel's random boot id.
std::uint64_t machine_number() {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : kernel_boot_id())
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

IpcOrigin this_origin() {
  static const std::uint64_t kMachine = machine_number();
  return {.process = this_process(),
          .machine = kMachine,
          .pid_namespace = namespace_number("/proc/self/ns/pid"),
          .net_namespace = namespace_number("/proc/self/ns/net"),
          .user = ::geteuid()};
}

void check_running(const ProcessStamp& exporter) {
  if (!has_ended(exporter)) return;
  throw PeerLostError(
      fmt::format("import_ipc: process {}, which exported the memory, is gone", exporter.pid));
}

void check_reachable(const IpcOrigin& exporter) {
  const IpcOrigin self = this_origin();
  if (exporter.machine != self.machine) {
    throw NotSupported(
        "import_ipc: memory of a process on this machine was expected, but got memory of another "
        "machine (or of before a restart); send the content through a communicator instead");
  }
  if (exporter.pid_namespace != self.pid_namespace) {
    throw NotSupported(fmt::format(
        "import_ipc: an exporter in the same pid namespace was expected, but got one in namespace "
        "{} while this process is in {}; start both containers with a shared one (docker run "
        "--pid=host or --pid=container:NAME)",
        exporter.pid_namespace, self.pid_namespace));
  }
  check_running(exporter.process);
  if (exporter.user != self.user) {
    throw NotSupported(
        fmt::format("import_ipc: an exporter of the same user was expected, but got user {} while "
                    "this process is user {}; start both as one user",
                    exporter.user, self.user));
  }
  if (exporter.net_namespace != self.net_namespace) {
    throw NotSupported(fmt::format(
        "import_ipc: an exporter in the same network namespace was expected, but got one in "
        "namespace {} while this process is in {}; start both containers with a shared one (docker "
        "run --network=host or --network=container:NAME)",
        exporter.net_namespace, self.net_namespace));
  }
}

}  // namespace gantry::memory
