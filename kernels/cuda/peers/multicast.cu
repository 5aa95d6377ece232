#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/peers/find_item.cuh"
#include "kernels/peers/multicast_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Bytes that a block copies at a time: four 16-byte words per thread, all in flight together,
// because an access to a peer takes about a microsecond.
constexpr int kWordsInFlight = 4;
constexpr std::uint32_t kChunkBytes = kThreads * kWordsInFlight * 16;
// Enough blocks to occupy the largest GPU several times over.
constexpr std::uint32_t kMostBlocks = 1024;
// For copies to several devices: about one block per multiprocessor of a large GPU. Two megabytes
// in flight saturate a link. More only wait in the switch and delay the other receivers.
constexpr std::uint32_t kMostMulticastBlocks = 132;

// Regions as a kernel parameter: by value, so that a launch needs no memory and can be captured.
template <int N>
struct MulticastTable {
  std::int32_t item_count = 0;
  std::int32_t shift_count = 0;
  std::uint32_t chunks = 0;
  std::int64_t shifts[kMaxMulticastCopies] = {};
  CopyRegion regions[N];
  std::uint32_t first_chunks[N];
};

// Table sizes. Kernel parameters have at most 32,764 bytes.
constexpr int kFewRegions = 8;
constexpr int kSomeRegions = 120;
constexpr int kManyRegions = 320;
constexpr int kMostRegions = 1100;
static_assert(sizeof(MulticastTable<kMostRegions>) <= 32764);

// Copies `count` words to all destinations, with all threads of the block.
template <class Word, class Table>
__device__ void copy_words(const Table& table, const std::byte* from, std::byte* to,
                           std::uint32_t count) {
  const Word* source = reinterpret_cast<const Word*>(from);
  const int copies = table.shift_count + 1;
  for (std::uint32_t base = threadIdx.x; base < count; base += kThreads * kWordsInFlight) {
    Word words[kWordsInFlight];
#pragma unroll
    for (int u = 0; u < kWordsInFlight; ++u) {
      if (base + u * kThreads < count) words[u] = source[base + u * kThreads];
    }
    // Each block starts with another destination, so that the stores spread over all links.
    int copy = static_cast<int>(blockIdx.x % static_cast<unsigned>(copies));
    for (int k = 0; k < copies; ++k) {
      Word* target = reinterpret_cast<Word*>(copy == 0 ? to : to + table.shifts[copy - 1]);
#pragma unroll
      for (int u = 0; u < kWordsInFlight; ++u) {
        if (base + u * kThreads < count) target[base + u * kThreads] = words[u];
      }
      if (++copy == copies) copy = 0;
    }
  }
}

// Copies the bytes before the first whole word, the words, and the bytes after the last word.
template <class Word, class Table>
__device__ void copy_chunk(const Table& table, const std::byte* from, std::byte* to,
                           std::uint32_t bytes) {
  constexpr std::uint32_t kWidth = sizeof(Word);
  const auto misaligned =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from) % kWidth);
  std::uint32_t head = misaligned == 0 ? 0 : kWidth - misaligned;
  if (head > bytes) head = bytes;
  const std::uint32_t words = (bytes - head) / kWidth;
  const std::uint32_t done = head + words * kWidth;
  if (kWidth > 1 && head > 0) copy_words<std::uint8_t>(table, from, to, head);
  copy_words<Word>(table, from + head, to + head, words);
  if (kWidth > 1 && done < bytes) {
    copy_words<std::uint8_t>(table, from + done, to + done, bytes - done);
  }
}

template <int N>
__global__ void __launch_bounds__(kThreads)
    multicast_kernel(const __grid_constant__ MulticastTable<N> table) {
  std::uint64_t shift_bits = 0;
  for (int k = 0; k < table.shift_count; ++k) {
    shift_bits |= static_cast<std::uint64_t>(table.shifts[k]);
  }
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    const int at = find_item(table, chunk);
    const CopyRegion& region = table.regions[at];
    const std::size_t offset =
        static_cast<std::size_t>(chunk - table.first_chunks[at]) * kChunkBytes;
    const std::size_t rest = region.bytes - offset;
    const std::uint32_t bytes = rest < kChunkBytes ? static_cast<std::uint32_t>(rest) : kChunkBytes;
    const std::byte* from = static_cast<const std::byte*>(region.from) + offset;
    std::byte* to = static_cast<std::byte*>(region.to) + offset;
    // The widest word to which all addresses can be aligned together.
    const std::uint64_t apart =
        (reinterpret_cast<std::uintptr_t>(from) ^ reinterpret_cast<std::uintptr_t>(to)) |
        shift_bits;
    if (apart % 16 == 0) {
      copy_chunk<uint4>(table, from, to, bytes);
    } else if (apart % 8 == 0) {
      copy_chunk<std::uint64_t>(table, from, to, bytes);
    } else if (apart % 4 == 0) {
      copy_chunk<std::uint32_t>(table, from, to, bytes);
    } else if (apart % 2 == 0) {
      copy_chunk<std::uint16_t>(table, from, to, bytes);
    } else {
      copy_chunk<std::uint8_t>(table, from, to, bytes);
    }
  }
}

template <int N>
void launch_table(void* stream, std::span<const CopyRegion> regions,
                  std::span<const std::ptrdiff_t> shifts) {
  MulticastTable<N> table;
  table.item_count = static_cast<std::int32_t>(regions.size());
  table.shift_count = static_cast<std::int32_t>(shifts.size());
  std::copy(shifts.begin(), shifts.end(), table.shifts);
  std::uint32_t chunks = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    table.regions[i] = regions[i];
    table.first_chunks[i] = chunks;
    chunks += static_cast<std::uint32_t>((regions[i].bytes + kChunkBytes - 1) / kChunkBytes);
  }
  table.chunks = chunks;
  const std::uint32_t most = shifts.empty() ? kMostBlocks : kMostMulticastBlocks;
  launch("multicast", stream, std::min(chunks, most), kThreads, 0, multicast_kernel<N>, table);
}

}  // namespace

void multicast(void* stream, std::span<const CopyRegion> regions,
               std::span<const std::ptrdiff_t> shifts) {
  while (!regions.empty()) {
    const std::size_t count = std::min(regions.size(), static_cast<std::size_t>(kMostRegions));
    const std::span<const CopyRegion> now = regions.first(count);
    if (count <= static_cast<std::size_t>(kFewRegions)) {
      launch_table<kFewRegions>(stream, now, shifts);
    } else if (count <= static_cast<std::size_t>(kSomeRegions)) {
      launch_table<kSomeRegions>(stream, now, shifts);
    } else if (count <= static_cast<std::size_t>(kManyRegions)) {
      launch_table<kManyRegions>(stream, now, shifts);
    } else {
      launch_table<kMostRegions>(stream, now, shifts);
    }
    regions = regions.subspan(count);
  }
}

}  // namespace gantry::kernels::cuda
