#include "collectives/peers/probe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream.hpp>

#include "core/env/settings.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "kernels/op_scope.hpp"
#include "kernels/peers/nary.hpp"

namespace gantry {

namespace {

// A pattern has a short part and a long part. A rank writes as many bytes to all others together in
// a large group as in one of eight ranks.
constexpr std::size_t kShortBytes = std::size_t{4} << 10;
constexpr std::size_t kMostPatternBytes = kProbeBytes / 2;
constexpr std::size_t kRanksOfMostBytes = 8;
std::size_t pattern_bytes_for(int size) {
  const auto others = static_cast<std::size_t>(std::max(size - 1, 1));
  const std::size_t fair = kMostPatternBytes * (kRanksOfMostBytes - 1) / others;
  return std::clamp(fair / kShortBytes * kShortBytes, 2 * kShortBytes, kMostPatternBytes);
}
// The offset between two writers' patterns in one random array.
constexpr std::size_t kShift = 64;
constexpr std::size_t kMostLines = 8;

// The result of one rank's writes to another, as seen by one of the two.
enum Finding : char {
  kFine = 'y',
  kKernelLost = 'k',  // a kernel's stores did not arrive
  kCopyLost = 'c',    // a copy engine's writes did not arrive
  kHung = 'h',        // the work timed out
  kRefused = 'e',     // the driver returned an error
  kUntried = '-',
};

// False for findings that may differ at the next attempt.
bool is_lasting(char finding) {
  return finding == kFine || finding == kKernelLost || finding == kCopyLost;
}

std::string_view text_of(char finding) {
  switch (finding) {
    case kKernelLost:
      return "stores of kernels do not arrive";
    case kCopyLost:
      return "writes of copy engines do not arrive";
    case kHung:
      return "writes do not end in time";
    case kRefused:
      return "the driver refuses writes";
  }
  return "writes were not tried";
}

// The probe of all pairs, on one rank.
class Probe {
 public:
  Probe(Bootstrap& bootstrap, int rank, int size, int device, std::span<void* const> memory,
        std::chrono::milliseconds deadline, const ProbeClock& clock)
      : bootstrap_(bootstrap),
        rank_(rank),
        size_(size),
        device_(device),
        pattern_bytes_(pattern_bytes_for(size)),
        memory_(memory),
        deadline_(deadline),
        clock_(clock),
        stream_(Stream::from_pool(Device::cuda(device))),
        sent_(static_cast<std::size_t>(size), kUntried),
        received_(static_cast<std::size_t>(size), kUntried) {}

  PeerReachability run() {
    sent_[static_cast<std::size_t>(rank_)] = received_[static_cast<std::size_t>(rank_)] = kFine;
    prepare();
    for (int turn = 1; turn < size_; ++turn) {
      // Each memory has one writer at a time.
      const int to = (rank_ + turn) % size_;
      const int from = (rank_ + size_ - turn) % size_;
      attempt(sent_, to, [&] { write_to(to); });
      bootstrap_.all_gather("written");
      attempt(received_, from, [&] { return compare(memory_[as_index(rank_)], from); });
      if (sent_[as_index(to)] == kUntried) {
        attempt(sent_, to, [&] { return compare(memory_[as_index(to)], rank_); });
      }
      bootstrap_.all_gather("read");
    }
    // Memory that unfinished work may still access is never freed.
    if (hangs_) {
      (void)pattern_.release();
      (void)landing_.release();
      (void)source_.release();
    }
    return merge(bootstrap_.all_gather(sent_ + received_ + refusal_));
  }

 private:
  static std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

  void prepare() {
    // All ranks use rank 0's seed, so that owners know the expected patterns.
    const std::string seed = bootstrap_.all_gather(std::to_string(std::random_device{}()))[0];
    const std::size_t bytes = pattern_bytes_ + kShift * as_index(size_);
    std::string nowhere(1, kUntried);
    attempt(nowhere, 0, [&] {
      pattern_ = memory::pinned(bytes);
      landing_ = memory::pinned(pattern_bytes_);
      source_ = memory::allocate(stream_, bytes);
      std::mt19937_64 random(std::stoull(seed));
      auto* words = static_cast<std::uint64_t*>(pattern_.data());
      std::generate_n(words, bytes / sizeof *words, std::ref(random));
      driver().copy(source_.data(), words, bytes, stream_.native());
    });
    is_ready_ = nowhere[0] == kUntried;
  }

  // Runs one step and records its failure, so that all ranks complete all turns.
  template <class Step>
  void attempt(std::string& findings, int rank, Step step) {
    if (hangs_ || !is_ready_) {
      findings[as_index(rank)] = hangs_ ? kHung : kRefused;
      return;
    }
    try {
      if constexpr (std::is_void_v<decltype(step())>) {
        step();
      } else {
        findings[as_index(rank)] = step();
      }
    } catch (const Error& error) {
      findings[as_index(rank)] = hangs_ ? kHung : kRefused;
      if (refusal_.empty()) refusal_ = error.what();
    }
  }

  // Blocks the host until the stream is done. The deadline counts from here, since other ranks may
  // be slow.
  void finish() {
    const BlockingIsNeeded needed;
    done_.record(stream_);
    const auto end = clock_() + deadline_;
    while (!driver().event_reached(done_.native_handle())) {
      if (clock_() > end) {
        hangs_ = true;
        throw TimeoutError("the device did not end a write in time");
      }
      std::this_thread::yield();
    }
    done_.synchronize();
  }

  void write_to(int to) {
    const kernels::OpScope scope("probe_peer");
    auto* at = static_cast<std::byte*>(memory_[as_index(to)]);
    const std::byte* from =
        static_cast<const std::byte*>(source_.data()) + kShift * as_index(rank_);
    const auto target = kernels::Target::on(stream_);
    const auto store = [&](std::size_t offset, std::size_t bytes) {
      const void* const input = from + offset;
      kernels::nary(target, kernels::NaryOp::bor, at + offset, std::span(&input, 1),
                    static_cast<std::int64_t>(bytes / sizeof(std::int64_t)), DType::i64);
    };
    store(0, kShortBytes);
    store(kShortBytes, pattern_bytes_ - kShortBytes);
    at += pattern_bytes_;
    driver().copy(at, from, kShortBytes, stream_.native());
    driver().copy(at + kShortBytes, from + kShortBytes, pattern_bytes_ - kShortBytes,
                  stream_.native());
    finish();
  }

  // Compares both patterns of `writer`.
  char compare(const void* memory, int writer) {
    const auto* at = static_cast<const std::byte*>(memory);
    const std::byte* wanted =
        static_cast<const std::byte*>(pattern_.data()) + kShift * as_index(writer);
    for (const char lost : {kKernelLost, kCopyLost}) {
      driver().copy(landing_.data(), at, pattern_bytes_, stream_.native());
      finish();
      if (std::memcmp(landing_.data(), wanted, pattern_bytes_) != 0) return lost;
      at += pattern_bytes_;
    }
    return kFine;
  }

  // Combines both sides' findings of all pairs.
  PeerReachability merge(const std::vector<std::string>& reports) const {
    const auto ranks = as_index(size_);
    PeerReachability reachability{
        .size = size_, .usable = std::vector<std::uint8_t>(ranks * ranks), .why = {}};
    std::vector<std::string> lines;
    for (std::size_t writer = 0; writer < ranks; ++writer) {
      for (std::size_t owner = 0; owner < ranks; ++owner) {
        const char sent = reports[writer][owner];
        const char received = reports[owner][ranks + writer];
        const bool is_fine = sent == kFine && received == kFine;
        reachability.usable[writer * ranks + owner] = is_fine ? 1 : 0;
        if (is_fine) continue;
        reachability.is_under_way = reachability.is_under_way || sent == kHung || received == kHung;
        reachability.is_lasting =
            reachability.is_lasting && is_lasting(sent) && is_lasting(received);
        const bool writer_knows = sent != kFine;
        const std::size_t witness = writer_knows ? writer : owner;
        const std::string refusal = reports[witness].substr(2 * ranks);
        lines.push_back(
            fmt::format("from rank {} to the memory of rank {}: {} (seen by rank {}{}{})", writer,
                        owner, text_of(writer_knows ? sent : received), witness,
                        refusal.empty() ? "" : ": ", refusal));
      }
    }
    if (lines.empty()) return reachability;
    const std::size_t more = lines.size() > kMostLines ? lines.size() - kMostLines : 0;
    lines.resize(lines.size() - more);
    reachability.why = fmt::format("{}", fmt::join(lines, "; "));
    if (more > 0) reachability.why += fmt::format("; and {} more pairs", more);
    return reachability;
  }

  Bootstrap& bootstrap_;
  int rank_;
  int size_;
  int device_;
  const std::size_t pattern_bytes_;
  std::span<void* const> memory_;
  std::chrono::milliseconds deadline_;
  const ProbeClock& clock_;
  Stream stream_;
  Event done_;
  memory::Buffer pattern_;
  memory::Buffer landing_;
  memory::Buffer source_;
  bool is_ready_ = true;
  bool hangs_ = false;
  std::string sent_;
  std::string received_;
  std::string refusal_;
};

PeerReachability reachability_of_all(int size, bool usable, std::string why) {
  const auto pairs = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  return {.size = size,
          .usable = std::vector<std::uint8_t>(pairs, usable ? 1 : 0),
          .why = std::move(why)};
}

std::string_view name_of(PeerMode mode) {
  switch (mode) {
    case PeerMode::off:
      return "off";
    case PeerMode::on:
      return "on";
    case PeerMode::probe:
      return "probe";
  }
  return "";
}

}  // namespace

bool PeerReachability::all() const {
  return std::all_of(usable.begin(), usable.end(), [](std::uint8_t pair) { return pair != 0; });
}

PeerMode peer_mode() {
  // NCCL's variable counts where gantry's own is unset.
  const bool is_default = env::kP2p.text().empty();
  if (is_default && env::get("NCCL_P2P_DISABLE").value_or("") == "1") return PeerMode::off;
  const std::string wanted = env::kP2p.get();
  if (wanted == name_of(PeerMode::off)) return PeerMode::off;
  return wanted == name_of(PeerMode::on) ? PeerMode::on : PeerMode::probe;
}

PeerReachability probe_peers(Bootstrap& bootstrap, int rank, int size, int device,
                             std::span<void* const> peer_memory, std::chrono::milliseconds deadline,
                             const PeerCacheFolder& cache, const ProbeClock& clock) {
  const DeviceGuard guard(Device::cuda(device));
  const PeerMode mode = peer_mode();
  const std::string uuid = device_properties(Device::cuda(device)).uuid;
  std::vector<std::string> uuids;
  bool all_on = true;
  const std::vector<std::string> replies =
      bootstrap.all_gather(fmt::format("{} {}", name_of(mode), uuid));
  for (std::size_t peer = 0; peer < replies.size(); ++peer) {
    const std::size_t space = replies[peer].find(' ');
    const std::string theirs = replies[peer].substr(0, space);
    uuids.push_back(replies[peer].substr(space + 1));
    all_on = all_on && theirs == name_of(PeerMode::on);
    if (theirs == name_of(PeerMode::off)) {
      return reachability_of_all(
          size, false,
          fmt::format("switched off on rank {} by GANTRY_P2P or NCCL_P2P_DISABLE", peer));
    }
  }
  if (all_on) return reachability_of_all(size, true, {});
  const PeerCache kept(cache, uuids);
  // Rank 0 decides for all ranks whether the cached result is used.
  std::string known;
  if (rank == 0) {
    if (const auto reachability = kept.load()) known = PeerCache::to_text(*reachability, {});
  }
  known = bootstrap.all_gather(known)[0];
  if (!known.empty()) {
    if (const auto reachability = PeerCache::from_text(known, {})) return *reachability;
  }
  PeerReachability reachability =
      Probe(bootstrap, rank, size, device, peer_memory, deadline, clock).run();
  if (rank == 0 && reachability.is_lasting) kept.store(reachability);
  return reachability;
}

std::string explain_unreachable(int peer, std::string_view peer_uuid) {
  std::vector<std::string> visible;
  for (int i = 0; i < device_count(); ++i) {
    visible.push_back(device_properties(Device::cuda(i)).uuid);
    if (visible.back() == peer_uuid) return {};
  }
  const auto mask = env::get("CUDA_VISIBLE_DEVICES");
  return fmt::format(
      "rank {}'s device {} is not visible to this process, which sees {}{}; start all ranks with "
      "the "
      "same CUDA_VISIBLE_DEVICES and let each take its device by its local rank or GANTRY_DEVICE, "
      "as "
      "glaunch does, so that they can use each other's memory",
      peer, peer_uuid, fmt::join(visible, ", "),
      mask ? fmt::format(" because of CUDA_VISIBLE_DEVICES={}", *mask)
           : std::string(" (a container may hide it)"));
}

}  // namespace gantry
