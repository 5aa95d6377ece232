#include <gantry/ipc/ipc.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>

#include "device/checked_device_index.hpp"
#include "ipc/events.hpp"
#include "ipc/exporter.hpp"
#include "ipc/handle.hpp"
#include "ipc/lease.hpp"
#include "ipc/mirrors.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry::memory {
namespace {

void check_whole_device(const char* op, const std::string& uuid) {
  if (!uuid.starts_with("MIG-")) return;
  throw NotSupported(
      fmt::format("{}: expected memory of a whole GPU, but got memory of the MIG instance {}; use "
                  "one process per "
                  "instance or disable MIG: CUDA cannot share it between processes",
                  op, uuid));
}

Device find_device(const std::string& uuid) {
  std::string visible;
  for (int i = 0; i < device_count(); ++i) {
    const std::string& known = device_properties(Device::cuda(i)).uuid;
    if (known == uuid) return Device::cuda(i);
    visible += (i == 0 ? "" : ", ") + known;
  }
  throw NotSupported(
      fmt::format("import_ipc: expected one of the visible devices {}, but got {}; add it to "
                  "CUDA_VISIBLE_DEVICES of the importer",
                  visible, uuid));
}

void enable_access(Device from, Device owner, IpcKind kind, bool is_local) {
  if (from == owner) return;
  if (!can_access_peer(from, owner)) {
    throw NotSupported(fmt::format(
        "import_ipc: expected a device with peer access to {}, but got {}; import for {} and copy",
        owner.str(), from.str(), owner.str()));
  }
  // ImportedExtent maps another process's chunks for each device; local ones are mapped already.
  if (kind == IpcKind::segment || is_local) enable_peer_access(from, owner);
}

void wait_for_local_export(const IpcHandleFields& fields, Device owner, const Stream& stream) {
  if (!fields.event) return;
  // An event that is not found was recorded again: the work before the export is complete.
  if (NativeEvent event = IpcEvents::of(owner.index).find(*fields.event)) {
    driver().wait_event(stream.native(), event);
  }
}

struct Opened {
  std::shared_ptr<ImportLease> lease;
  std::byte* data = nullptr;
};

Opened open_local(const IpcHandleFields& fields, Device owner, Device device,
                  const Stream& stream) {
  const auto block = IpcExporter::instance().add_local_reference(fields.slot, fields.generation);
  if (!block) {
    throw InvalidArgument("import_ipc: expected a live block of this process, but got a freed one");
  }
  Opened opened{std::make_shared<ImportLease>(fields.slot, *block, device.index),
                static_cast<std::byte*>(block->data)};
  wait_for_local_export(fields, owner, stream);
  return opened;
}

Opened open_remote(const IpcHandleFields& fields, Device owner, Device device,
                   const Stream& stream) {
  auto peer = IpcPeer::of(fields);
  if (!peer->acquire(fields.slot, fields.generation)) {
    throw InvalidArgument(
        fmt::format("import_ipc: expected a live block of exporter process {}, but got a freed one",
                    fields.exporter.process.pid));
  }
  Opened opened{std::make_shared<ImportLease>(fields.slot, peer, device.index)};
  opened.lease->map(import_extent(*peer, fields, device.index, owner.index));
  if (opened.lease->extent()->bytes() != fields.extent_bytes) {
    throw InvalidArgument(fmt::format(
        "import_ipc: expected an extent of {} bytes, as another handle of exporter process {} "
        "says, but got {}",
        opened.lease->extent()->bytes(), fields.exporter.process.pid, fields.extent_bytes));
  }
  if (fields.event) peer->wait_for(*fields.event, stream.native());
  opened.data = opened.lease->extent()->base() + fields.offset;
  if (sanitizer::is_on()) sanitizer::memory_allocated(opened.data, fields.bytes);
  return opened;
}

}  // namespace

IpcHandle export_ipc(const Block& block) {
  static_cast<void>(driver());
  auto* allocator = dynamic_cast<ExportableAllocator*>(block.allocator);
  if (!block.device.is_cuda() || (block.data != nullptr && allocator == nullptr)) {
    throw NotSupported(fmt::format(
        "export_ipc: expected a block of the caching allocator, but got one of {} on {}",
        block.allocator != nullptr ? block.allocator->name() : "no allocator", block.device.str()));
  }
  IpcHandleFields fields;
  fields.exporter = this_process_scope();
  fields.device_uuid = device_properties(block.device).uuid;
  if (block.data == nullptr || block.bytes == 0) return encode(fields);

  check_whole_device("export_ipc", fields.device_uuid);
  // Checked before anything is exported: another process cannot wait for an event of a capture.
  const NativeStream stream = Stream::current(block.device).native();
  if (driver().is_capturing(stream)) {
    throw CaptureError(
        fmt::format("export_ipc: expected a current stream that is not being captured, but got "
                    "a captured one of {}",
                    block.device.str()),
        block.device.str());
  }
  fields.nonce = start_ipc_service();
  const IpcExporter::Entry entry = IpcExporter::instance().add(*allocator, block);
  fields.kind = entry.segment ? IpcKind::segment : IpcKind::chunks;
  fields.slot = entry.slot;
  fields.generation = entry.generation;
  fields.extent_id = entry.extent_id;
  fields.extent_bytes = entry.extent_bytes;
  fields.offset = entry.offset;
  fields.bytes = block.bytes;
  if (entry.segment) fields.segment = *entry.segment;
  fields.event = IpcEvents::of(block.device.index).record(stream);
  return encode(fields);
}

ImportedBlock import_ipc(const IpcHandle& handle, std::optional<Device> device) {
  // Throws in a forked child, which must not touch its parent's tables.
  static_cast<void>(driver());
  const IpcHandleFields fields = decode(handle);
  ImportedBlock block;
  block.bytes_ = fields.bytes;
  if (device) block.device_ = Device::cuda(checked_device_index(*device, "import_ipc"));
  if (fields.kind == IpcKind::empty) {
    if (!device) block.device_ = find_device(fields.device_uuid);
    return block;
  }
  const bool is_local = fields.exporter == this_process_scope();
  if (!is_local) check_reachable(fields.exporter);
  check_whole_device("import_ipc", fields.device_uuid);
  const Device owner = find_device(fields.device_uuid);
  if (!device) block.device_ = owner;
  enable_access(block.device_, owner, fields.kind, is_local);
  const Stream stream = Stream::current(block.device_);
  Opened opened;
  try {
    opened = is_local ? open_local(fields, owner, block.device_, stream)
                      : open_remote(fields, owner, block.device_, stream);
  } catch (const CudaError&) {
    // The exporter may have ended between the check and the call.
    if (!is_local) check_running(fields.exporter.process);
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
  ImportLease::release_completed();
  IpcPeer::remove_lost();
  IpcExporter::instance().sweep();
}

IpcStats ipc_stats(Device device) {
  const int index = checked_device_index(device, "ipc_stats");
  IpcStats stats;
  IpcExporter::instance().add_to(stats, index);
  stats.imports = ImportLease::count(index);
  stats.mapped_bytes = imported_bytes(index) + mirrored_bytes(index);
  stats.pending_releases = ImportLease::count_pending(index);
  return stats;
}

}  // namespace gantry::memory
