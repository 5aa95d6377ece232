#include "collectives/peers/cache.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "collectives/peers/process.hpp"
#include "core/regular_file.hpp"

namespace gantry {

namespace {

// Grows when a probe tests more than it did.
constexpr int kVersion = 1;
// More than a verdict about 1,024 devices takes.
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::string driver_version() {
  if (platform() == Platform::simulated) return "simulated";
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

// FNV-1a.
std::uint64_t digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

PeerCacheFolder peer_cache_folder() {
  // Simulated devices work, or are broken on purpose.
  if (platform() == Platform::simulated) return std::nullopt;
  if (const auto folder = env::get("XDG_CACHE_HOME"); folder && !folder->empty()) {
    return std::filesystem::path(*folder) / "gantry";
  }
  if (const auto home = env::get("HOME"); home && !home->empty()) {
    return std::filesystem::path(*home) / ".cache" / "gantry";
  }
  return std::nullopt;
}

PeerCache::PeerCache(PeerCacheFolder folder, const std::vector<std::string>& uuids)
    : folder_(std::move(folder)),
      key_(fmt::format("{} | {} | {} | {}", kVersion, driver_version(), boot_id(),
                       fmt::join(uuids, " "))) {}

std::filesystem::path PeerCache::file() const {
  return *folder_ / fmt::format("peers-{:016x}.json", digest(key_));
}

std::string PeerCache::to_text(const PeerVerdict& verdict, const std::string& key) {
  return nlohmann::json{
      {"key", key}, {"size", verdict.size}, {"usable", verdict.usable}, {"why", verdict.why}}
      .dump(1);
}

std::optional<PeerVerdict> PeerCache::from_text(const std::string& text, const std::string& key) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("key", nlohmann::json()) != key) return std::nullopt;
  PeerVerdict verdict;
  try {
    verdict.size = json.at("size").get<int>();
    verdict.usable = json.at("usable").get<std::vector<std::uint8_t>>();
    verdict.why = json.at("why").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  const auto pairs =
      static_cast<std::size_t>(verdict.size) * static_cast<std::size_t>(verdict.size);
  if (verdict.size < 1 || verdict.usable.size() != pairs) return std::nullopt;
  verdict.was_cached = true;
  return verdict;
}

std::optional<PeerVerdict> PeerCache::load() const noexcept {
  if (!folder_) return std::nullopt;
  try {
    return from_text(read_regular_file(file().string(), kMostBytes).text, key_);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("reading a verdict about peers: {}", error.what()));
    return std::nullopt;
  }
}

void PeerCache::store(const PeerVerdict& verdict) const noexcept {
  if (!folder_) return;
  try {
    std::filesystem::create_directories(*folder_);
    // Readers see all of it or nothing.
    const std::filesystem::path temporary = file().string() + fmt::format(".{}", getpid());
    {
      std::ofstream out(temporary);
      out << to_text(verdict, key_) << '\n';
      if (!out.flush()) return;
    }
    std::filesystem::rename(temporary, file());
  } catch (const std::exception& error) {
    logging::debug(fmt::format("keeping a verdict about peers: {}", error.what()));
  }
}

}  // namespace gantry
