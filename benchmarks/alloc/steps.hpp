// The requests of the comparisons: every allocator gets the same bytes in the same order.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace gantry::benchmarks {

// Every power of two from 512 B to 64 MiB.
inline std::vector<std::size_t> pair_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 512; bytes <= (std::size_t{64} << 20); bytes *= 2) {
    sizes.push_back(bytes);
  }
  return sizes;
}

// A set of live blocks, of which a random one is replaced at each step. Sizes are log-uniform
// between powers of two. Drawn by hand: the standard's distributions differ between libraries.
class LiveSetSteps {
 public:
  LiveSetSteps(std::size_t blocks, double min_exponent, double max_exponent,
               std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < kSteps; ++i) {
      const double unit = static_cast<double>(random() >> 11) * 0x1.0p-53;
      bytes_[i] = static_cast<std::uint32_t>(
          std::exp2(min_exponent + (max_exponent - min_exponent) * unit));
      victims_[i] = static_cast<std::uint32_t>(random() % blocks);
    }
  }
  [[nodiscard]] std::size_t bytes(std::size_t step) const { return bytes_[step % kSteps]; }
  [[nodiscard]] std::size_t victim(std::size_t step) const { return victims_[step % kSteps]; }

 private:
  static constexpr std::size_t kSteps = 1 << 16;
  std::vector<std::uint32_t> bytes_ = std::vector<std::uint32_t>(kSteps);
  std::vector<std::uint32_t> victims_ = std::vector<std::uint32_t>(kSteps);
};

// 1,000 live blocks, 512 B to 8 MiB.
inline LiveSetSteps live_set_steps(std::size_t blocks = 1000) { return {blocks, 9.0, 23.0}; }
// Per thread: 16 live blocks, 512 B to 64 KiB.
inline LiveSetSteps thread_steps(std::uint64_t thread) { return {16, 9.0, 16.0, thread + 1}; }

// A sequence that gantry-replay --dump wrote; docs/reference/gantry-replay.md describes the file.
struct DumpedSequence {
  struct Op {
    std::uint64_t bytes;  // 0: free
    std::uint32_t block;
    std::uint16_t stream;
    std::uint16_t thread;
  };
  std::vector<Op> ops;
  std::uint32_t blocks = 0;
  std::uint64_t peak_live_bytes = 0;
};

inline DumpedSequence read_dumped_sequence(const std::string& path) {
  struct Header {
    std::array<char, 8> magic;
    std::uint64_t ops;
    std::uint64_t peak_live_bytes;
    std::uint32_t blocks;
    std::uint32_t streams_and_threads;
  } header;
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || std::memcmp(header.magic.data(), "gantseq1", 8) != 0) {
    throw std::runtime_error(path + ": not a dump of gantry-replay");
  }
  DumpedSequence sequence;
  sequence.blocks = header.blocks;
  sequence.peak_live_bytes = header.peak_live_bytes;
  sequence.ops.resize(header.ops);
  file.read(reinterpret_cast<char*>(sequence.ops.data()),
            static_cast<std::streamsize>(header.ops * sizeof(DumpedSequence::Op)));
  if (!file) throw std::runtime_error(path + ": the dump is cut off");
  return sequence;
}

}  // namespace gantry::benchmarks
