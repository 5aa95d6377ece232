#pragma once

#include <string>

#include "collectives/peers/probe.hpp"

namespace gantry {

// A cache of probe results, with one file per set of devices, driver version and boot.
class PeerCache {
 public:
  // `uuids` in rank order.
  PeerCache(PeerCacheFolder folder, const std::vector<std::string>& uuids);

  // Loads the result; nullopt if there is no file, or it is damaged or has another key.
  std::optional<PeerReachability> load() const noexcept;
  // Stores the result. Ignores errors.
  void store(const PeerReachability& reachability) const noexcept;

  // Convert a result to text and back.
  static std::string to_text(const PeerReachability& reachability, const std::string& key);
  static std::optional<PeerReachability> from_text(const std::string& text, const std::string& key);

  const std::string& key() const { return key_; }

 private:
  std::filesystem::path file() const;

  PeerCacheFolder folder_;
  std::string key_;
};

}  // namespace gantry
