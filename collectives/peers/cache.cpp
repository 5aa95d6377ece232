#include "collectives/peers/probe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "core/bytes.hpp"
#include "core/files/atomic_file.hpp"
#include "core/files/regular_file.hpp"
#include "core/processes/process_stamp.hpp"
#include "core/text/json.hpp"

namespace gantry {

namespace {

// Incremented when probes test more.
constexpr int kVersion = 1;
// Enough for the reachability of 1,024 devices.
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::string driver_version() {
  if (platform() == Platform::simulated) return "simulated";
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

PeerCacheFolder peer_cache_folder() {
  // Simulated devices work, or tests break them on purpose.
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
  return *folder_ / fmt::format("peers-{:016x}.json", fnv1a(key_));
}

std::string PeerCache::to_text(const PeerReachability& reachability, const std::string& key) {
  return Json::object({{"key", key},
                       {"size", reachability.size},
                       {"usable", reachability.usable},
                       {"why", reachability.why}})
      .dump(1);
}

std::optional<PeerReachability> PeerCache::from_text(const std::string& text,
                                                     const std::string& key) {
  const std::optional<Json> json = Json::try_parse(text);
  if (!json || !json->contains("key") || json->at("key") != key) return std::nullopt;
  PeerReachability reachability;
  try {
    reachability.size = json->at("size").as<int>();
    reachability.usable = json->at("usable").as<std::vector<std::uint8_t>>();
    reachability.why = json->at("why").as<std::string>();
  } catch (const JsonError&) {
    return std::nullopt;
  }
  const auto pairs =
      static_cast<std::size_t>(reachability.size) * static_cast<std::size_t>(reachability.size);
  if (reachability.size < 1 || reachability.usable.size() != pairs) return std::nullopt;
  reachability.was_cached = true;
  return reachability;
}

std::optional<PeerReachability> PeerCache::load() const noexcept {
  if (!folder_) return std::nullopt;
  try {
    return from_text(read_regular_file(file().string(), kMostBytes).text, key_);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("reading cached peer reachability: {}", error.what()));
    return std::nullopt;
  }
}

void PeerCache::store(const PeerReachability& reachability) const noexcept {
  if (!folder_) return;
  try {
    std::filesystem::create_directories(*folder_);
    AtomicFile replaced(file());
    replaced.out() << to_text(reachability, key_) << '\n';
    replaced.commit();
  } catch (const std::exception& error) {
    logging::debug(fmt::format("storing peer reachability: {}", error.what()));
  }
}

}  // namespace gantry
