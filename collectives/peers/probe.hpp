#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

// Note [Probing peers]
// Drivers report peer access that machines do not have: behind some IOMMU and ACS settings what one
// device writes into another's memory is lost without an error, or never ends. So before anything
// relies on it, every rank writes a pattern into every other rank's memory, by a kernel and by a
// copy engine, 4 KiB and 2 MiB; the writer reads it back, the owner reads its own memory, and both
// must find it. What a machine is capable of does not change before it boots again, so the
// reachability is kept in a file; unless writes were refused or did not end in time, which another
// job's memory or work may have caused.

// Who can use whose memory; the same on every rank.
struct PeerReachability {
  int size = 0;
  std::vector<std::uint8_t> usable;  // by writer·size + owner
  std::string why;                   // what does not work, for people; empty if all does
  bool was_cached = false;
  bool is_under_way = false;  // writes did not end in time, and may still arrive
  bool is_lasting = true;     // tells of the machine, not of what else went on there

  bool can_use(int writer, int owner) const {
    return usable[static_cast<std::size_t>(writer * size + owner)] != 0;
  }
  bool all() const;
};

// Bytes of every rank's memory that a probe overwrites.
inline constexpr std::size_t kProbeBytes = 2 * ((std::size_t{2} << 20) + (std::size_t{4} << 10));

// Where results are kept; none: nowhere.
using PeerCacheFolder = std::optional<std::filesystem::path>;
// $XDG_CACHE_HOME/gantry or ~/.cache/gantry on real GPUs; nowhere for simulated ones.
PeerCacheFolder peer_cache_folder();

// Whether ranks of one machine use each other's memory. GANTRY_P2P, or if that is unset
// NCCL_P2P_DISABLE.
enum class PeerMode : std::uint8_t { off, on, probe };
// Throws: InvalidArgument.
PeerMode peer_mode();

// The reachability of the ranks of one machine: none, all, or what a probe finds. `peer_memory`
// holds kProbeBytes of every rank, as this rank's device addresses them; nobody else uses them
// meanwhile. Work that is not done `deadline` after it was enqueued counts as lost. Collective.
// Throws: PeerLostError, TimeoutError of `bootstrap`; InvalidArgument.
PeerReachability probe_peers(Bootstrap& bootstrap, int rank, int size, int device,
                             std::span<void* const> peer_memory, std::chrono::milliseconds deadline,
                             const PeerCacheFolder& cache = peer_cache_folder());

// Why this process cannot open the memory of `peer`, whose device has this UUID: it is not among
// the devices that this process sees, and which variable hides it. Empty if it is.
std::string explain_unreachable(int peer, std::string_view peer_uuid);

}  // namespace gantry
