#include "memory/ipc/handle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <gantry/core/error.hpp>

namespace gantry::memory {
namespace {

constexpr std::array kMagic = {std::byte{'G'}, std::byte{'I'}, std::byte{'P'}, std::byte{'C'}};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kUuidBytes = 48;
constexpr std::size_t kNativeBytes = 64;
constexpr std::size_t kScopeBytes = 4 + 8 + 8 + 8 + 8 + 4;
constexpr std::size_t kHandleBytes = kMagic.size() + 4 + 1 + kScopeBytes + kUuidBytes + 8 + 4 +
                                     5 * 8 + kNativeBytes + 1 + kNativeBytes + 8;

// FNV-1a: detects accidental damage, not forgery.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

class Writer {
 public:
  Writer() { bytes_.reserve(kHandleBytes); }

  template <class T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
    }
  }
  void raw(std::span<const std::byte> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
  }
  void text(std::string_view value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) {
      bytes_.push_back(i < value.size() ? static_cast<std::byte>(value[i]) : std::byte{0});
    }
  }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::span<const std::byte> raw(std::size_t count) {
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <class T>
  T number() {
    T value = 0;
    const auto taken = raw(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(taken[i]) << (8 * i)));
    }
    return value;
  }
  std::string text(std::size_t width) {
    std::string value;
    for (const std::byte byte : raw(width)) {
      if (byte != std::byte{0}) value.push_back(static_cast<char>(byte));
    }
    return value;
  }

 private:
  std::span<const std::byte> rest_;
};

[[noreturn]] void throw_malformed(const std::string& actual) {
  throw InvalidArgument("import_ipc: expected the bytes of an IpcHandle, but got " + actual);
}

}  // namespace

IpcHandle encode(const IpcHandleFields& fields) {
  Writer writer;
  writer.raw(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(fields.kind));
  writer.number(static_cast<std::uint32_t>(fields.exporter.process.pid));
  writer.number(fields.exporter.process.start_time);
  writer.number(fields.exporter.machine);
  writer.number(fields.exporter.pid_namespace);
  writer.number(fields.exporter.net_namespace);
  writer.number(fields.exporter.user);
  writer.text(fields.device_uuid, kUuidBytes);
  writer.number(fields.nonce);
  writer.number(fields.slot);
  for (const std::uint64_t value :
       {fields.generation, fields.extent_id, fields.extent_bytes, fields.offset, fields.bytes}) {
    writer.number(value);
  }
  writer.raw(fields.segment.bytes);
  writer.number(static_cast<std::uint8_t>(fields.event ? 1 : 0));
  writer.raw(fields.event.value_or(NativeEventHandle{}).bytes);
  writer.number(checksum(writer.bytes()));
  return {std::move(writer.bytes())};
}

IpcHandleFields decode(const IpcHandle& handle) {
  // The version determines the length, so it is checked first.
  constexpr std::size_t kHeadBytes = kMagic.size() + 4;
  if (handle.bytes.size() < kHeadBytes) {
    throw_malformed(fmt::format("{} bytes instead of {}", handle.bytes.size(), kHandleBytes));
  }
  Reader reader(handle.bytes);
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
  if (Reader(std::span(handle.bytes).last(8)).number<std::uint64_t>() != checksum(body)) {
    throw_malformed("damaged bytes (wrong checksum)");
  }
  IpcHandleFields fields;
  const auto kind = reader.number<std::uint8_t>();
  fields.kind = static_cast<IpcKind>(kind);
  fields.exporter.process.pid = static_cast<std::int32_t>(reader.number<std::uint32_t>());
  fields.exporter.process.start_time = reader.number<std::uint64_t>();
  fields.exporter.machine = reader.number<std::uint64_t>();
  fields.exporter.pid_namespace = reader.number<std::uint64_t>();
  fields.exporter.net_namespace = reader.number<std::uint64_t>();
  fields.exporter.user = reader.number<std::uint32_t>();
  fields.device_uuid = reader.text(kUuidBytes);
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

}  // namespace gantry::memory
