#include "kernels/random/host_random.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/host/launch.hpp"
#include "kernels/impl/random.inl"

namespace gantry::kernels::host {

void store_position(std::uint64_t* words, RandomPosition at) {
  words[0] = at.seed;
  words[1] = at.offset;
}

void uniform(const TensorRef& out, RandomPosition at, double low, double high) {
  run_uniform(Loop{}, out, at.resolved(), low, high);
}

void normal(const TensorRef& out, RandomPosition at, double mean, double standard_deviation) {
  run_normal(Loop{}, out, at.resolved(), mean, standard_deviation);
}

void randint(const TensorRef& out, RandomPosition at, std::int64_t low, std::int64_t high) {
  run_randint(Loop{}, out, at.resolved(), low, high);
}

void bernoulli(const TensorRef& out, const TensorRef& probability, RandomPosition at) {
  run_bernoulli(Loop{}, out, probability, at.resolved());
}

namespace {

// Copies `n` words to `to` in the order of `bits` bits from `shift` on. Returns where each value of
// the bits ends.
std::vector<std::size_t> distribute(const std::uint64_t* from, std::uint64_t* to, std::size_t n,
                                    int shift, int bits) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::vector<std::size_t> ends(std::size_t{1} << bits);
  for (std::size_t i = 0; i < n; ++i) ++ends[from[i] >> shift & mask];
  std::size_t total = 0;
  for (std::size_t& end : ends) total += std::exchange(end, total);
  for (std::size_t i = 0; i < n; ++i) to[ends[from[i] >> shift & mask]++] = from[i];
  return ends;
}

// Sorts words that are nearly sorted.
void insert_all(std::uint64_t* words, std::size_t n) {
  for (std::size_t i = 1; i < n; ++i) {
    const std::uint64_t word = words[i];
    std::size_t at = i;
    for (; at > 0 && words[at - 1] > word; --at) words[at] = words[at - 1];
    words[at] = word;
  }
}

// Sorts `words`, whose upper bits are random. `other` has room for them.
//
// Each pass is one over memory that the caches hold: groups by the upper bits, then single places
// in a group.
void sort_random(std::uint64_t* words, std::uint64_t* other, std::size_t n) {
  constexpr int kGroupBits = 8;
  constexpr std::size_t kOneGroup = std::size_t{1} << 13;
  constexpr int kMostBits = 16;
  const auto sort_group = [kMostBits](const std::uint64_t* group, std::uint64_t* sorted,
                                      std::size_t count, int known_bits) {
    const int bits = std::min(kMostBits, static_cast<int>(std::bit_width(count)));
    distribute(group, sorted, count, 64 - known_bits - bits, bits);
    insert_all(sorted, count);
  };
  if (n <= kOneGroup) {
    sort_group(words, other, n, 0);
    std::copy_n(other, n, words);
    return;
  }
  std::size_t begin = 0;
  for (const std::size_t end : distribute(words, other, n, 64 - kGroupBits, kGroupBits)) {
    sort_group(other + begin, words + begin, end - begin, kGroupBits);
    begin = end;
  }
}

}  // namespace

// Sorts words of a key's upper bits and its position. Keys that differ in their lower bits only are
// compared again.
void randperm(const TensorRef& out, RandomPosition at) {
  const auto n = static_cast<std::size_t>(out.numel());
  const functors::SortKey key(at.resolved());
  const std::uint64_t mask = (std::uint64_t{1} << std::bit_width(n - 1)) - 1;
  auto* const words = static_cast<std::uint64_t*>(out.data);
  Loop::run_block_range(key, words, 0, out.numel());
  for (std::size_t i = 0; i < n; ++i) words[i] = (words[i] & ~mask) | i;
  sort_random(words, std::make_unique_for_overwrite<std::uint64_t[]>(n).get(), n);
  for (std::size_t first = 0, end; first < n; first = end) {
    const std::uint64_t prefix = words[first] & ~mask;
    for (end = first; end < n && (words[end] & ~mask) == prefix; ++end) words[end] &= mask;
    if (end - first == 1) continue;
    std::stable_sort(words + first, words + end, [&](std::uint64_t a, std::uint64_t b) {
      return key(static_cast<std::int64_t>(a)) < key(static_cast<std::int64_t>(b));
    });
  }
}

}  // namespace gantry::kernels::host
