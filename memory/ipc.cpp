#include <gantry/memory/ipc.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>

#include "memory/ipc_events.hpp"
#include "memory/ipc_imports.hpp"
#include "memory/ipc_message.hpp"
#include "memory/native_allocator.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {
namespace {

Device find_device(const std::string& uuid) {
  for (int i = 0; i < device_count(); ++i) {
    if (device_properties(Device::cuda(i)).uuid == uuid) return Device::cuda(i);
  }
  throw NotSupported(fmt::format(
      "import_ipc: a device that is visible to this process was expected, but got {}", uuid));
}

void reach(Device from, Device owner) {
  if (from == owner) return;
  if (!can_access_peer(from, owner)) {
    throw NotSupported(
        fmt::format("import_ipc: a device with peer access to {} was expected, but got {}",
                    owner.str(), from.str()));
  }
  enable_peer_access(from, owner);
}

void throw_if_gone(const ProcessStamp& exporter) {
  if (is_running(exporter)) return;
  throw PeerLostError(
      fmt::format("import_ipc: process {}, which exported the memory, is gone", exporter.pid));
}

void* own_segment(Device owner, const IpcMessage& message) {
  void* base = NativeAllocator::instance().heap(owner.index).find_exported(message.segment);
  if (base != nullptr) return base;
  throw InvalidArgument(
      "import_ipc: live memory of this process was expected, but got memory that was given back");
}

void wait_for_own_export(const IpcMessage& message, Device owner, const Stream& stream) {
  if (!message.event) return;
  // No longer among the events in use: the work before the export is done.
  if (NativeEvent event = IpcEvents::of(owner.index).find(*message.event)) {
    driver().wait_event(stream.native(), event);
  }
}

}  // namespace

IpcHandle export_ipc(const Block& block) {
  if (!block.device.is_cuda() ||
      (block.data != nullptr && block.allocator != &NativeAllocator::instance())) {
    throw NotSupported(fmt::format(
        "export_ipc: a block of the caching allocator was expected, but got one of {} on {}",
        block.allocator != nullptr ? block.allocator->name() : "nobody", block.device.str()));
  }
  IpcMessage message;
  message.exporter = this_process();
  message.device_uuid = device_properties(block.device).uuid;
  message.bytes = block.bytes;
  if (block.data != nullptr) {
    const int index = block.device.index;
    const DeviceHeap::Export exported = NativeAllocator::instance().heap(index).export_block(
        *static_cast<const BlockNode*>(block.handle));
    message.segment = exported.segment;
    message.offset = exported.offset;
    message.event = IpcEvents::of(index).mark(Stream::current(block.device).native());
  }
  return encode(message);
}

ImportedBlock import_ipc(const IpcHandle& handle, Device device) {
  const IpcMessage message = decode(handle);
  ImportedBlock block;
  block.device_ = Device::cuda(require_cuda(device, "import_ipc"));
  block.bytes_ = message.bytes;
  if (message.bytes == 0) return block;

  const bool own_process = message.exporter == this_process();
  if (!own_process) throw_if_gone(message.exporter);
  const Device owner = find_device(message.device_uuid);
  reach(block.device_, owner);
  void* base = nullptr;
  try {
    const Stream stream = Stream::current(block.device_);
    if (own_process) {
      base = own_segment(owner, message);
      wait_for_own_export(message, owner, stream);
    } else {
      auto segment = import_segment(block.device_.index, message.segment);
      if (message.event) segment->wait_for(*message.event, stream.native());
      base = segment->base();
      block.mapping_ = std::move(segment);
    }
  } catch (const CudaError&) {
    // It may have ended between the check and the call.
    if (!own_process) throw_if_gone(message.exporter);
    throw;
  }
  block.data_ = static_cast<std::byte*>(base) + message.offset;
  return block;
}

}  // namespace gantry::memory
