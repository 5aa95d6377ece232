#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

// Note [Probing peers]
// Drivers may report peer access that does not work. With some IOMMU and ACS settings, writes to a
// peer's memory are silently lost, or never complete. So every rank first writes a pattern to every
// other rank's memory, with a kernel and with a copy engine, 4 KiB and 2 MiB. The writer reads it
// back, the owner reads its own memory, and both must find the pattern. The result holds until the
// machine reboots, so it is cached in a file. Writes that failed or timed out are not cached:
// another job's memory or work may be the cause.

// The pairs of ranks with working peer access; the same on every rank.
struct PeerReachability {
  int size = 0;
  std::vector<std::uint8_t> usable;  // index: writer·size + owner
  std::string why;                   // the failures as text; empty if there are none
  bool was_cached = false;
  bool is_under_way = false;  // writes timed out and may still arrive
  bool is_lasting = true;     // a property of the machine, not of its current load

  bool can_use(int writer, int owner) const {
    return usable[static_cast<std::size_t>(writer * size + owner)] != 0;
  }
  bool all() const;
};

// The bytes of each rank's memory that a probe overwrites.
inline constexpr std::size_t kProbeBytes = 2 * ((std::size_t{2} << 20) + (std::size_t{4} << 10));

// The folder of cached results; nullopt: no cache.
using PeerCacheFolder = std::optional<std::filesystem::path>;
// Returns $XDG_CACHE_HOME/gantry or ~/.cache/gantry on real GPUs, nullopt on simulated ones.
PeerCacheFolder peer_cache_folder();

// Peer memory between ranks of one machine: GANTRY_P2P, or NCCL_P2P_DISABLE if that is unset.
enum class PeerMode : std::uint8_t { off, on, probe };
// Throws: InvalidArgument.
PeerMode peer_mode();

// The clock of the deadlines.
using ProbeClock = std::function<std::chrono::steady_clock::time_point()>;

// Returns the reachability of one machine's ranks: none, all, or the result of a probe.
// `peer_memory` has kProbeBytes of every rank, at this rank's addresses; nothing else may use them
// during the probe. Work that is not done `deadline` after its submission counts as lost.
// Collective. Throws: PeerLostError, TimeoutError of `bootstrap`; InvalidArgument.
PeerReachability probe_peers(Bootstrap& bootstrap, int rank, int size, int device,
                             std::span<void* const> peer_memory, std::chrono::milliseconds deadline,
                             const PeerCacheFolder& cache = peer_cache_folder(),
                             const ProbeClock& clock = std::chrono::steady_clock::now);

// Explains why this process cannot open the memory of `peer`, whose device has this UUID: the
// device is not visible here, with the variable that hides it. Empty if the device is visible.
std::string explain_unreachable(int peer, std::string_view peer_uuid);

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
