#include "tools/replay/allocation_sequence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include <gantry/core/error.hpp>

#include "core/files/atomic_file.hpp"

namespace gantry::replay {
namespace {

static_assert(std::endian::native == std::endian::little, "dumps are little-endian");

constexpr std::string_view kMagic = "gantseq1";

struct DumpHeader {
  std::array<char, 8> magic{};
  std::uint64_t ops = 0;
  std::uint64_t peak_live_bytes = 0;
  std::uint32_t blocks = 0;
  std::uint16_t streams = 0;
  std::uint16_t threads = 0;
};
static_assert(sizeof(DumpHeader) == 32, "dumps hold this layout");

[[noreturn]] void reject(std::size_t index, const std::string& why) {
  throw InvalidArgument(fmt::format("replay dump: operation {} {}", index, why));
}

// Throws if the sequence breaks the rules of AllocationSequence.
void check(const AllocationSequence& sequence) {
  std::vector<std::uint8_t> live(sequence.blocks, 0);
  std::vector<std::uint16_t> owner(sequence.blocks, 0);
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < sequence.ops.size(); ++i) {
    const AllocationOp& op = sequence.ops[i];
    if (op.block >= sequence.blocks) reject(i, fmt::format("names block {}", op.block));
    if (op.stream >= sequence.streams) reject(i, fmt::format("names stream {}", op.stream));
    if (op.thread >= sequence.threads) reject(i, fmt::format("names thread {}", op.thread));
    if (op.is_allocation()) {
      if (op.block != next++) reject(i, fmt::format("allocates block {} out of turn", op.block));
      live[op.block] = 1;
      owner[op.block] = op.stream;
    } else {
      if (live[op.block] == 0) reject(i, fmt::format("frees block {}, not live", op.block));
      if (owner[op.block] != op.stream) reject(i, "frees a block on another stream than its own");
      live[op.block] = 0;
    }
  }
  if (next != sequence.blocks) {
    throw InvalidArgument(fmt::format("replay dump: {} blocks were announced, but {} allocated",
                                      sequence.blocks, next));
  }
}

}  // namespace

std::uint32_t AllocationSequence::allocate(std::uint64_t bytes, std::uint16_t stream,
                                           std::uint16_t thread) {
  if (bytes == 0) throw InvalidArgument("AllocationSequence::allocate: expected bytes, but got 0");
  if (blocks == std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument("AllocationSequence::allocate: more than 4 billion blocks");
  }
  ops.push_back({.bytes = bytes, .block = blocks, .stream = stream, .thread = thread});
  streams = std::max<std::uint16_t>(streams, static_cast<std::uint16_t>(stream + 1));
  threads = std::max<std::uint16_t>(threads, static_cast<std::uint16_t>(thread + 1));
  return blocks++;
}

void AllocationSequence::free(std::uint32_t block, std::uint16_t stream, std::uint16_t thread) {
  ops.push_back({.bytes = 0, .block = block, .stream = stream, .thread = thread});
  threads = std::max<std::uint16_t>(threads, static_cast<std::uint16_t>(thread + 1));
}

SequenceFacts facts_of(const AllocationSequence& sequence) {
  SequenceFacts facts;
  facts.smallest_bytes = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> bytes(sequence.blocks, 0);
  std::uint64_t live = 0;
  for (const AllocationOp& op : sequence.ops) {
    if (op.is_allocation()) {
      ++facts.allocations;
      ++facts.live_blocks_at_end;
      bytes[op.block] = op.bytes;
      live += op.bytes;
      facts.peak_live_bytes = std::max(facts.peak_live_bytes, live);
      facts.smallest_bytes = std::min(facts.smallest_bytes, op.bytes);
      facts.largest_bytes = std::max(facts.largest_bytes, op.bytes);
    } else {
      --facts.live_blocks_at_end;
      live -= bytes[op.block];
    }
  }
  if (facts.allocations == 0) facts.smallest_bytes = 0;
  return facts;
}

void write_dump(const AllocationSequence& sequence, const std::string& path) {
  DumpHeader header{.magic = {},
                    .ops = sequence.ops.size(),
                    .peak_live_bytes = facts_of(sequence).peak_live_bytes,
                    .blocks = sequence.blocks,
                    .streams = sequence.streams,
                    .threads = sequence.threads};
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  AtomicFile file(path, "replay dump: ");
  file.out().write(reinterpret_cast<const char*>(&header), sizeof header);
  file.out().write(reinterpret_cast<const char*>(sequence.ops.data()),
                   static_cast<std::streamsize>(sequence.ops.size() * sizeof(AllocationOp)));
  file.commit();
}

bool is_dump(const std::string& bytes) { return bytes.starts_with(kMagic); }

AllocationSequence read_dump(const std::string& bytes, const std::string& name) {
  DumpHeader header;
  if (!is_dump(bytes) || bytes.size() < sizeof header) {
    throw InvalidArgument("replay dump: expected a header of 32 bytes that begins with gantseq1");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t room = (bytes.size() - sizeof header) / sizeof(AllocationOp);
  if (header.ops != room || (bytes.size() - sizeof header) % sizeof(AllocationOp) != 0) {
    throw InvalidArgument(
        fmt::format("replay dump: {} operations were announced, but {} follow", header.ops, room));
  }
  if (header.blocks > header.ops || header.streams == 0 || header.threads == 0) {
    throw InvalidArgument("replay dump: the header's counts contradict each other");
  }
  AllocationSequence sequence;
  sequence.name = name;
  sequence.blocks = header.blocks;
  sequence.streams = header.streams;
  sequence.threads = header.threads;
  sequence.ops.resize(room);
  if (room != 0) {
    std::memcpy(sequence.ops.data(), bytes.data() + sizeof header, room * sizeof(AllocationOp));
  }
  check(sequence);
  return sequence;
}

}  // namespace gantry::replay
