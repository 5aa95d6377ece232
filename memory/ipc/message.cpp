#include "memory/ipc/message.hpp"

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
constexpr std::size_t kOriginBytes = 4 + 8 + 8 + 8 + 8 + 4;
constexpr std::size_t kMessageBytes = kMagic.size() + 4 + 1 + kOriginBytes + kUuidBytes + 8 + 4 +
                                      5 * 8 + kNativeBytes + 1 + kNativeBytes + 8;

// FNV-1a: finds accidents on the way, not malice.
std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

class Writer {
 public:
  Writer() { bytes_.reserve(kMessageBytes); }

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

[[noreturn]] void reject(const std::string& what) {
  throw InvalidArgument("import_ipc: the bytes of an IpcHandle were expected, but got " + what);
}

}  // namespace

IpcHandle encode(const IpcMessage& message) {
  Writer writer;
  writer.raw(kMagic);
  writer.number(kVersion);
  writer.number(static_cast<std::uint8_t>(message.kind));
  writer.number(static_cast<std::uint32_t>(message.exporter.process.pid));
  writer.number(message.exporter.process.start_time);
  writer.number(message.exporter.machine);
  writer.number(message.exporter.pid_namespace);
  writer.number(message.exporter.net_namespace);
  writer.number(message.exporter.user);
  writer.text(message.device_uuid, kUuidBytes);
  writer.number(message.nonce);
  writer.number(message.slot);
  for (const std::uint64_t value : {message.generation, message.extent_id, message.extent_bytes,
                                    message.offset, message.bytes}) {
    writer.number(value);
  }
  writer.raw(message.segment.bytes);
  writer.number(static_cast<std::uint8_t>(message.event ? 1 : 0));
  writer.raw(message.event.value_or(NativeEventHandle{}).bytes);
  writer.number(checksum(writer.bytes()));
  return {std::move(writer.bytes())};
}

IpcMessage decode(const IpcHandle& handle) {
  // The version says how long the rest is, so it is looked at first.
  constexpr std::size_t kHeadBytes = kMagic.size() + 4;
  if (handle.bytes.size() < kHeadBytes) {
    reject(fmt::format("{} bytes instead of {}", handle.bytes.size(), kMessageBytes));
  }
  Reader reader(handle.bytes);
  if (!std::ranges::equal(reader.raw(kMagic.size()), kMagic)) reject("bytes without its magic");
  if (const auto version = reader.number<std::uint32_t>(); version != kVersion) {
    reject(fmt::format("version {} instead of {}; both processes need the same gantry", version,
                       kVersion));
  }
  if (handle.bytes.size() != kMessageBytes) {
    reject(fmt::format("{} bytes instead of {}", handle.bytes.size(), kMessageBytes));
  }
  const auto body = std::span(handle.bytes).first(kMessageBytes - 8);
  if (Reader(std::span(handle.bytes).last(8)).number<std::uint64_t>() != checksum(body)) {
    reject("damaged ones (the checksum does not match)");
  }
  IpcMessage message;
  const auto kind = reader.number<std::uint8_t>();
  message.kind = static_cast<IpcKind>(kind);
  message.exporter.process.pid = static_cast<std::int32_t>(reader.number<std::uint32_t>());
  message.exporter.process.start_time = reader.number<std::uint64_t>();
  message.exporter.machine = reader.number<std::uint64_t>();
  message.exporter.pid_namespace = reader.number<std::uint64_t>();
  message.exporter.net_namespace = reader.number<std::uint64_t>();
  message.exporter.user = reader.number<std::uint32_t>();
  message.device_uuid = reader.text(kUuidBytes);
  message.nonce = reader.number<std::uint64_t>();
  message.slot = reader.number<std::uint32_t>();
  for (std::uint64_t* value : {&message.generation, &message.extent_id, &message.extent_bytes,
                               &message.offset, &message.bytes}) {
    *value = reader.number<std::uint64_t>();
  }
  std::ranges::copy(reader.raw(kNativeBytes), message.segment.bytes.begin());
  const auto has_event = reader.number<std::uint8_t>();
  const bool fits = message.offset <= message.extent_bytes &&
                    message.bytes <= message.extent_bytes - message.offset;
  const bool is_empty = message.kind == IpcKind::empty;
  if (kind > static_cast<std::uint8_t>(IpcKind::segment) || has_event > 1 || !fits ||
      is_empty != (message.bytes == 0)) {
    reject("fields out of range");
  }
  if (has_event == 1) {
    message.event.emplace();
    std::ranges::copy(reader.raw(kNativeBytes), message.event->bytes.begin());
  }
  return message;
}

}  // namespace gantry::memory
