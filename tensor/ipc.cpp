#include <fmt/format.h>

#include <array>
#include <span>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/tensor/tensor.hpp>

#include "core/bytes.hpp"
#include "tensor/check.hpp"

namespace gantry {

namespace {

// A tensor's handle: the magic, the layout, the memory's handle behind its length, and a checksum.
constexpr std::string_view kMagic = "gtensor2";
constexpr std::size_t kChecksumBytes = 8;

[[noreturn]] void throw_malformed(std::string_view actual) {
  throw InvalidArgument(
      fmt::format("from_ipc: expected a handle made by Tensor::ipc_handle, but got {}", actual));
}

struct TensorFields {
  DType dtype{};
  Dims sizes;
  Dims strides;
  std::int64_t offset = 0;
  IpcHandle memory;
};

TensorFields decode(const IpcHandle& handle) {
  const std::span<const std::byte> bytes(handle.bytes);
  if (bytes.size() < kMagic.size() + kChecksumBytes) {
    throw_malformed(fmt::format("{} bytes", bytes.size()));
  }
  ByteReader reader(bytes.first(bytes.size() - kChecksumBytes));
  if (reader.fixed_text(kMagic.size()) != kMagic) throw_malformed("bytes of another kind");
  if (ByteReader(bytes.last(kChecksumBytes)).number<std::uint64_t>() !=
      fnv1a(bytes.first(bytes.size() - kChecksumBytes))) {
    throw_malformed("damaged bytes (wrong checksum)");
  }
  const auto dtype = reader.number<std::uint8_t>();
  const auto ndim = reader.number<std::uint8_t>();
  if (!reader.ok() || dtype >= kDTypeCount || ndim > kMaxDims) {
    throw_malformed("fields out of range");
  }
  const auto read_dims = [&] {
    std::array<std::int64_t, kMaxDims> values{};
    for (std::size_t i = 0; i < ndim; ++i) values.at(i) = reader.number<std::int64_t>();
    return Dims(std::span<const std::int64_t>(values.data(), ndim));
  };
  TensorFields fields;
  fields.dtype = static_cast<DType>(dtype);
  fields.sizes = read_dims();
  fields.strides = read_dims();
  fields.offset = reader.number<std::int64_t>();
  const auto memory = reader.raw(reader.number<std::uint32_t>());
  if (!reader.finished()) throw_malformed("fields out of range");
  fields.memory.bytes.assign(memory.begin(), memory.end());
  return fields;
}

}  // namespace

IpcHandle Tensor::ipc_handle() const {
  detail::check_defined("ipc_handle", "self", *this);
  const memory::Block* block = storage().block();
  const bool is_empty = storage().bytes() == 0;
  if (!is_cuda() || (block == nullptr && !is_empty)) {
    throw NotSupported(fmt::format(
        "ipc_handle: expected memory of a device allocator, but got {}",
        is_cuda() ? "foreign or imported memory on " + device().str() : "a CPU tensor"));
  }
  const memory::Block no_memory{.device = device()};
  const IpcHandle memory = memory::export_ipc(is_empty ? no_memory : *block);

  ByteWriter writer;
  writer.fixed_text(kMagic, kMagic.size());
  writer.number(static_cast<std::uint8_t>(dtype())).number(static_cast<std::uint8_t>(dim()));
  for (const std::int64_t size : sizes()) writer.number(size);
  for (const std::int64_t stride : strides()) writer.number(stride);
  writer.number(storage_offset());
  writer.number(static_cast<std::uint32_t>(memory.bytes.size())).raw(memory.bytes);
  writer.number(fnv1a(writer.bytes()));
  return {std::move(writer.bytes())};
}

Tensor Tensor::from_ipc(const IpcHandle& handle) {
  const TensorFields fields = decode(handle);
  const memory::ImportedBlock block = memory::import_ipc(fields.memory);
  const Storage storage =
      block.bytes() == 0 ? Storage::allocate(0, block.device()) : Storage::imported(block);
  return from_storage(storage, fields.sizes, fields.strides, fields.offset, fields.dtype);
}

}  // namespace gantry
