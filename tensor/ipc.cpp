#include <fmt/format.h>

#include <array>
#include <cstring>
#include <span>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/memory/ipc.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tensor/check.hpp"

namespace gantry {

namespace {

// The header of a tensor's IPC handle; the bytes of memory::export_ipc follow. Both processes run
// on one machine, so integers have native byte order.
struct Header {
  std::array<char, 8> magic{'g', 't', 'e', 'n', 's', 'o', 'r', '1'};
  std::array<char, 48> uuid{};
  std::uint32_t dtype = 0;
  std::int32_t ndim = 0;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::int64_t, kMaxDims> strides{};
  std::int64_t offset = 0;
};

[[noreturn]] void throw_malformed(std::string_view why) {
  throw InvalidArgument(
      fmt::format("from_ipc: expected a handle made by Tensor::ipc_handle, but got {}", why));
}

Header parse(const IpcHandle& handle) {
  Header header;
  if (handle.bytes.size() < sizeof header) {
    throw_malformed(fmt::format("{} bytes", handle.bytes.size()));
  }
  std::memcpy(&header, handle.bytes.data(), sizeof header);
  if (header.magic != Header{}.magic) throw_malformed("bytes of another kind");
  if (header.dtype >= kDTypeCount || header.ndim < 0 || header.ndim > kMaxDims ||
      header.uuid.back() != '\0') {
    throw_malformed("damaged bytes");
  }
  return header;
}

Device visible_device(std::string_view uuid) {
  for (int i = 0; i < device_count(); ++i) {
    if (device_properties(Device::cuda(i)).uuid == uuid) return Device::cuda(i);
  }
  throw NotSupported(fmt::format(
      "from_ipc: expected the exporter's device {} to be visible in this process, but none of its "
      "{} devices is that one",
      uuid, device_count()));
}

Dims dims_of(const std::array<std::int64_t, kMaxDims>& values, std::int32_t count) {
  return Dims(std::span<const std::int64_t>(values.data(), static_cast<std::size_t>(count)));
}

}  // namespace

IpcHandle Tensor::ipc_handle() const {
  detail::check_defined("ipc_handle", "self", *this);
  const memory::Block* block = storage().block();
  const bool no_memory = storage().bytes() == 0;
  if (!is_cuda() || (block == nullptr && !no_memory)) {
    throw NotSupported(fmt::format(
        "ipc_handle: expected memory of a device allocator, but got {}",
        is_cuda() ? "foreign or imported memory on " + device().str() : "a CPU tensor"));
  }
  const std::string& uuid = device_properties(device()).uuid;
  Header header;
  uuid.copy(header.uuid.data(), header.uuid.size() - 1);
  header.dtype = static_cast<std::uint32_t>(dtype());
  header.ndim = dim();
  std::copy(sizes().begin(), sizes().end(), header.sizes.begin());
  std::copy(strides().begin(), strides().end(), header.strides.begin());
  header.offset = storage_offset();

  const IpcHandle memory = no_memory ? IpcHandle{} : memory::export_ipc(*block);
  IpcHandle handle;
  handle.bytes.resize(sizeof header + memory.bytes.size());
  std::memcpy(handle.bytes.data(), &header, sizeof header);
  std::copy(memory.bytes.begin(), memory.bytes.end(),
            handle.bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header));
  return handle;
}

Tensor Tensor::from_ipc(const IpcHandle& handle) {
  const Header header = parse(handle);
  const Device device = visible_device(header.uuid.data());
  const IpcHandle memory{
      {handle.bytes.begin() + static_cast<std::ptrdiff_t>(sizeof header), handle.bytes.end()}};
  const Storage storage = memory.bytes.empty()
                              ? Storage::allocate(0, device)
                              : Storage::imported(memory::import_ipc(memory, device));
  return from_storage(storage, dims_of(header.sizes, header.ndim),
                      dims_of(header.strides, header.ndim), header.offset,
                      static_cast<DType>(header.dtype));
}

}  // namespace gantry
