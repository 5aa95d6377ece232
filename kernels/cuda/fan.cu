#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/runs.cuh"
#include "kernels/fan_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// Bytes that one block copies at a time: four 16-byte words per thread, all in flight together,
// because a peer is a microsecond away.
constexpr int kWordsInFlight = 4;
constexpr std::uint32_t kChunkBytes = kThreads * kWordsInFlight * 16;
// Enough blocks to fill the largest GPU several times over.
constexpr std::uint32_t kMostBlocks = 1024;
// About one per multiprocessor of a large GPU, for runs that go to several devices: two megabytes
// in flight fill a link, and what is more only waits in the switch, in front of other receivers.
constexpr std::uint32_t kMostFanBlocks = 132;

// Runs as a kernel takes them: by value, so that a launch needs no memory and can be captured.
template <int N>
struct FanTable {
  std::int32_t run_count = 0;
  std::int32_t shift_count = 0;
  std::uint32_t chunks = 0;
  std::int64_t shifts[kMaxFanCopies] = {};
  CopyRegion runs[N];
  std::uint32_t first_chunks[N];
};

// Kernel parameters end at 32,764 bytes.
constexpr int kFewRuns = 8;
constexpr int kSomeRuns = 120;
constexpr int kManyRuns = 320;
constexpr int kMostRuns = 1100;
static_assert(sizeof(FanTable<kMostRuns>) <= 32764);

// Copies `count` words by all threads of the block.
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
    // Blocks begin with different receivers, so that no link serves all at once.
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

// The bytes before the first whole word, the words, and the bytes after the last one.
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
__global__ void __launch_bounds__(kThreads) fan_kernel(const __grid_constant__ FanTable<N> table) {
  std::uint64_t shift_bits = 0;
  for (int k = 0; k < table.shift_count; ++k) {
    shift_bits |= static_cast<std::uint64_t>(table.shifts[k]);
  }
  for (std::uint32_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    const int at = run_of(table, chunk);
    const CopyRegion& run = table.runs[at];
    const std::size_t offset =
        static_cast<std::size_t>(chunk - table.first_chunks[at]) * kChunkBytes;
    const std::size_t rest = run.bytes - offset;
    const std::uint32_t bytes = rest < kChunkBytes ? static_cast<std::uint32_t>(rest) : kChunkBytes;
    const std::byte* from = static_cast<const std::byte*>(run.from) + offset;
    std::byte* to = static_cast<std::byte*>(run.to) + offset;
    // Words as wide as all addresses agree to be aligned to.
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
void launch_table(void* stream, std::span<const CopyRegion> runs,
                  std::span<const std::ptrdiff_t> shifts) {
  FanTable<N> table;
  table.run_count = static_cast<std::int32_t>(runs.size());
  table.shift_count = static_cast<std::int32_t>(shifts.size());
  std::copy(shifts.begin(), shifts.end(), table.shifts);
  std::uint32_t chunks = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    table.runs[i] = runs[i];
    table.first_chunks[i] = chunks;
    chunks += static_cast<std::uint32_t>((runs[i].bytes + kChunkBytes - 1) / kChunkBytes);
  }
  table.chunks = chunks;
  const std::uint32_t most = shifts.empty() ? kMostBlocks : kMostFanBlocks;
  launch("fan", stream, std::min(chunks, most), kThreads, 0, fan_kernel<N>, table);
}

}  // namespace

void fan(void* stream, std::span<const CopyRegion> runs, std::span<const std::ptrdiff_t> shifts) {
  while (!runs.empty()) {
    const std::size_t count = std::min(runs.size(), static_cast<std::size_t>(kMostRuns));
    const std::span<const CopyRegion> now = runs.first(count);
    if (count <= static_cast<std::size_t>(kFewRuns)) {
      launch_table<kFewRuns>(stream, now, shifts);
    } else if (count <= static_cast<std::size_t>(kSomeRuns)) {
      launch_table<kSomeRuns>(stream, now, shifts);
    } else if (count <= static_cast<std::size_t>(kManyRuns)) {
      launch_table<kManyRuns>(stream, now, shifts);
    } else {
      launch_table<kMostRuns>(stream, now, shifts);
    }
    runs = runs.subspan(count);
  }
}

}  // namespace gantry::kernels::cuda
