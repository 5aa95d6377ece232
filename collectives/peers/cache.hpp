#pragma once

#include <string>

#include "collectives/peers/probe.hpp"

namespace gantry {

// Results of probes in files, one for each set of devices, driver and boot of the machine.
class PeerCache {
 public:
  // `uuids` in rank order.
  PeerCache(PeerCacheFolder folder, const std::vector<std::string>& uuids);

  // Nothing if there is no file, or one that is damaged or of something else.
  std::optional<PeerReachability> load() const noexcept;
  // A file that cannot be written is no failure.
  void store(const PeerReachability& reachability) const noexcept;

  // One reachability as text, and back.
  static std::string to_text(const PeerReachability& reachability, const std::string& key);
  static std::optional<PeerReachability> from_text(const std::string& text, const std::string& key);

  const std::string& key() const { return key_; }

 private:
  std::filesystem::path file() const;

  PeerCacheFolder folder_;
  std::string key_;
};

}  // namespace gantry
