#include <gantry/memory/ipc.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>

#include "device/checked_device_index.hpp"
#include "memory/ipc/events.hpp"
#include "memory/ipc/exports.hpp"
#include "memory/ipc/lease.hpp"
#include "memory/ipc/message.hpp"
#include "memory/ipc/release.hpp"
#include "memory/ipc/service.hpp"

namespace gantry::memory {
namespace {

void check_whole_device(const char* op, const std::string& uuid) {
  if (!uuid.starts_with("MIG-")) return;
  throw NotSupported(fmt::format(
      "{}: memory of a whole GPU was expected, but got memory of the MIG instance {}; CUDA shares "
      "no memory of MIG instances between processes, use one process per instance or disable MIG",
      op, uuid));
}

Device find_device(const std::string& uuid) {
  check_whole_device("import_ipc", uuid);
  std::string visible;
  for (int i = 0; i < device_count(); ++i) {
    const std::string& known = device_properties(Device::cuda(i)).uuid;
    if (known == uuid) return Device::cuda(i);
    visible += (i == 0 ? "" : ", ") + known;
  }
  throw NotSupported(fmt::format(
      "import_ipc: a device that is visible to this process was expected, but got {}, and visible "
      "are {}; add it to CUDA_VISIBLE_DEVICES of the importer",
      uuid, visible));
}

void reach(Device from, Device owner, IpcKind kind, bool is_own) {
  if (from == owner) return;
  if (!can_access_peer(from, owner)) {
    throw NotSupported(fmt::format(
        "import_ipc: a device with peer access to {} was expected, but got {}; import for {} and "
        "copy",
        owner.str(), from.str(), owner.str()));
  }
  // Another process's chunks are opened to their users one by one, our own are mapped already.
  if (kind == IpcKind::segment || is_own) enable_peer_access(from, owner);
}

void wait_for_own_export(const IpcMessage& message, Device owner, const Stream& stream) {
  if (!message.event) return;
  // No longer among the events in use: the work before the export is done.
  if (NativeEvent event = IpcEvents::of(owner.index).find(*message.event)) {
    driver().wait_event(stream.native(), event);
  }
}

struct Opened {
  std::shared_ptr<ImportLease> lease;
  std::byte* data = nullptr;
};

Opened open_own(const IpcMessage& message, Device owner, Device device, const Stream& stream) {
  const auto block = IpcExports::instance().open_here(message.slot, message.generation);
  if (!block) {
    throw InvalidArgument(
        "import_ipc: live memory of this process was expected, but got memory that was given back");
  }
  Opened opened{std::make_shared<ImportLease>(message.slot, *block, device.index),
                static_cast<std::byte*>(block->data)};
  wait_for_own_export(message, owner, stream);
  return opened;
}

Opened open_foreign(const IpcMessage& message, Device owner, Device device, const Stream& stream) {
  auto peer = IpcPeer::of(message);
  if (!peer->acquire(message.slot, message.generation)) {
    throw InvalidArgument(
        fmt::format("import_ipc: a block that process {} still holds, or that is imported already, "
                    "was expected, but got one that was freed",
                    message.exporter.process.pid));
  }
  Opened opened{std::make_shared<ImportLease>(message.slot, peer, device.index)};
  opened.lease->map(import_extent(*peer, message, device.index, owner.index));
  if (message.event) peer->wait_for(*message.event, stream.native());
  opened.data = opened.lease->extent()->base() + message.offset;
  return opened;
}

}  // namespace

IpcHandle export_ipc(const Block& block) {
  static_cast<void>(driver());
  auto* source = dynamic_cast<ExportSource*>(block.allocator);
  if (!block.device.is_cuda() || (block.data != nullptr && source == nullptr)) {
    throw NotSupported(fmt::format(
        "export_ipc: a block of the caching allocator was expected, but got one of {} on {}",
        block.allocator != nullptr ? block.allocator->name() : "nobody", block.device.str()));
  }
  IpcMessage message;
  message.exporter = this_origin();
  message.device_uuid = device_properties(block.device).uuid;
  if (block.data == nullptr || block.bytes == 0) return encode(message);

  check_whole_device("export_ipc", message.device_uuid);
  // Before anything is exported: an event in a capture is none for another process.
  const NativeStream stream = Stream::current(block.device).native();
  if (driver().is_capturing(stream)) {
    throw CaptureError(
        fmt::format("export_ipc: a current stream that is not being captured was expected, but got "
                    "a captured one of {}",
                    block.device.str()),
        block.device.str());
  }
  message.nonce = IpcService::instance().start();
  const IpcExports::Entry entry = IpcExports::instance().add(*source, block);
  message.kind = entry.segment ? IpcKind::segment : IpcKind::chunks;
  message.slot = entry.slot;
  message.generation = entry.generation;
  message.extent_id = entry.extent_id;
  message.extent_bytes = entry.extent_bytes;
  message.offset = entry.offset;
  message.bytes = block.bytes;
  if (entry.segment) message.segment = *entry.segment;
  message.event = IpcEvents::of(block.device.index).mark(stream);
  return encode(message);
}

ImportedBlock import_ipc(const IpcHandle& handle, Device device) {
  // What comes first needs no driver, and a forked child must not touch its parent's tables.
  static_cast<void>(driver());
  const IpcMessage message = decode(handle);
  ImportedBlock block;
  block.device_ = Device::cuda(checked_device_index(device, "import_ipc"));
  block.bytes_ = message.bytes;
  if (message.kind == IpcKind::empty) return block;

  const bool is_own = message.exporter == this_origin();
  if (!is_own) check_reachable(message.exporter);
  const Device owner = find_device(message.device_uuid);
  reach(block.device_, owner, message.kind, is_own);
  const Stream stream = Stream::current(block.device_);
  Opened opened;
  try {
    opened = is_own ? open_own(message, owner, block.device_, stream)
                    : open_foreign(message, owner, block.device_, stream);
  } catch (const CudaError&) {
    // It may have ended between the check and the call.
    if (!is_own) check_running(message.exporter.process);
    throw;
  }
  opened.lease->add_stream(stream);
  block.data_ = opened.data;
  block.lease_ = std::move(opened.lease);
  return block;
}

void ImportedBlock::record_stream(const Stream& stream) const {
  if (lease_ != nullptr) lease_->add_stream(stream);
}

void ipc_collect() {
  if (in_bad_fork()) return;
  IpcReleases::instance().finish();
  IpcPeer::forget_lost();
  ipc_sweep();
}

IpcStats ipc_stats(Device device) {
  const int index = checked_device_index(device, "ipc_stats");
  IpcStats stats;
  IpcExports::instance().count(index, stats);
  stats.imports = ImportLease::count(index);
  stats.mapped_bytes = imported_bytes(index);
  stats.pending_releases = IpcReleases::instance().pending(index);
  return stats;
}

}  // namespace gantry::memory
