// IpcHandles as text, for pipes between a test and its helper program.
#pragma once

#include <string>

#include <gantry/ipc/ipc.hpp>

namespace gantry::testing {

[[nodiscard]] inline std::string to_text(const IpcHandle& handle) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : handle.bytes) {
    text.push_back(kDigits[static_cast<int>(byte) >> 4]);
    text.push_back(kDigits[static_cast<int>(byte) & 15]);
  }
  return text;
}

[[nodiscard]] inline IpcHandle from_text(const std::string& text) {
  IpcHandle handle;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    handle.bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return handle;
}

}  // namespace gantry::testing
