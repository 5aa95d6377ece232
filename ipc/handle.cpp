#include "ipc/handle.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <gantry/core/error.hpp>

#include "core/bytes.hpp"
#include "core/processes/boot_id.hpp"

namespace gantry::memory {
namespace {

constexpr std::array kMagic = {std::byte{'G'}, std::byte{'I'}, std::byte{'P'}, std::byte{'C'}};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kUuidBytes = 48;
constexpr std::size_t kNativeBytes = 64;
constexpr std::size_t kScopeBytes = 4 + 8 + 8 + 8 + 8 + 4;
constexpr std::size_t kHandleBytes = kMagic.size() + 4 + 1 + kScopeBytes + kUuidBytes + 8 + 4 +
                                     5 * 8 + kNativeBytes + 1 + kNativeBytes + 8;

[[noreturn]] void throw_malformed(const std::string& actual) {
  throw InvalidArgument("import_ipc: expected the bytes of an IpcHandle, but got " + actual);
}

std::uint64_t namespace_number(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

IpcHandle encode(const IpcHandleFields& fields) {
  ByteWriter writer;
  writer.bytes().reserve(kHandleBytes);
  writer.raw(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(fields.kind));
  writer.number(fields.exporter.process.pid);
  writer.number(fields.exporter.process.start_time);
  writer.number(fields.exporter.machine);
  writer.number(fields.exporter.pid_namespace);
  writer.number(fields.exporter.net_namespace);
  writer.number(fields.exporter.user);
  writer.fixed_text(fields.device_uuid, kUuidBytes);
  writer.number(fields.nonce);
  writer.number(fields.slot);
  for (const std::uint64_t value :
       {fields.generation, fields.extent_id, fields.extent_bytes, fields.offset, fields.bytes}) {
    writer.number(value);
  }
  writer.raw(fields.segment.bytes);
  writer.number(static_cast<std::uint8_t>(fields.event ? 1 : 0));
  writer.raw(fields.event.value_or(NativeEventHandle{}).bytes);
  writer.number(fnv1a(writer.bytes()));
  return {std::move(writer.bytes())};
}

IpcHandleFields decode(const IpcHandle& handle) {
  // The version determines the length, so it is checked first.
  constexpr std::size_t kHeadBytes = kMagic.size() + 4;
  if (handle.bytes.size() < kHeadBytes) {
    throw_malformed(fmt::format("{} bytes instead of {}", handle.bytes.size(), kHandleBytes));
  }
  ByteReader reader(handle.bytes);
  if (!std::ranges::equal(reader.raw(kMagic.size()), kMagic))
    throw_malformed("bytes without the magic");
  if (const auto version = reader.number<std::uint32_t>(); version != kVersion) {
    throw_malformed(
        fmt::format("version {} instead of {}; both processes need the same version of gantry",
                    version, kVersion));
  }
  if (handle.bytes.size() != kHandleBytes) {
    throw_malformed(fmt::format("{} bytes instead of {}", handle.bytes.size(), kHandleBytes));
  }
  const auto body = std::span(handle.bytes).first(kHandleBytes - 8);
  if (ByteReader(std::span(handle.bytes).last(8)).number<std::uint64_t>() != fnv1a(body)) {
    throw_malformed("damaged bytes (wrong checksum)");
  }
  IpcHandleFields fields;
  const auto kind = reader.number<std::uint8_t>();
  fields.kind = static_cast<IpcKind>(kind);
  fields.exporter.process.pid = reader.number<std::int32_t>();
  fields.exporter.process.start_time = reader.number<std::uint64_t>();
  fields.exporter.machine = reader.number<std::uint64_t>();
  fields.exporter.pid_namespace = reader.number<std::uint64_t>();
  fields.exporter.net_namespace = reader.number<std::uint64_t>();
  fields.exporter.user = reader.number<std::uint32_t>();
  fields.device_uuid = std::string(reader.fixed_text(kUuidBytes));
  fields.nonce = reader.number<std::uint64_t>();
  fields.slot = reader.number<std::uint32_t>();
  for (std::uint64_t* value : {&fields.generation, &fields.extent_id, &fields.extent_bytes,
                               &fields.offset, &fields.bytes}) {
    *value = reader.number<std::uint64_t>();
  }
  std::ranges::copy(reader.raw(kNativeBytes), fields.segment.bytes.begin());
  const auto has_event = reader.number<std::uint8_t>();
  const bool fits =
      fields.offset <= fields.extent_bytes && fields.bytes <= fields.extent_bytes - fields.offset;
  const bool is_empty = fields.kind == IpcKind::empty;
  if (kind > static_cast<std::uint8_t>(IpcKind::segment) || has_event > 1 || !fits ||
      is_empty != (fields.bytes == 0)) {
    throw_malformed("fields out of range");
  }
  if (has_event == 1) {
    fields.event.emplace();
    std::ranges::copy(reader.raw(kNativeBytes), fields.event->bytes.begin());
  }
  return fields;
}

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
