#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gantry {

// A range of elements.
struct Part {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

inline constexpr std::int64_t kPartGrain = 256;

// Returns part i of `count` elements in `parts` ranges. All but the last have equal lengths,
// multiples of `grain` elements, so that every range is aligned for the widest loads. The last ones
// may be empty.
inline Part partition(std::int64_t count, int parts, int i, std::int64_t grain = kPartGrain) {
  const std::int64_t each = (count + parts * grain - 1) / (parts * grain) * grain;
  const std::int64_t begin = std::min(count, each * i);
  return {begin, std::min(each, count - begin)};
}

// Calls use(r, begin, count) for about those elements of each run r that are in `part` of the
// concatenated runs. A cut inside a run keeps the alignment of the run. Adjacent parts give
// adjacent ranges.
template <class LengthOf, class Use>
void for_each_range(std::size_t runs, LengthOf length_of, Part part, Use use) {
  constexpr std::int64_t kGrain = 16;
  std::int64_t place = 0;
  for (std::size_t r = 0; r < runs; ++r) {
    const std::int64_t length = length_of(r);
    const auto cut_at = [&](std::int64_t element) {
      if (element >= place + length) return length;
      return std::max<std::int64_t>(element - place, 0) / kGrain * kGrain;
    };
    const std::int64_t begin = cut_at(part.begin);
    const std::int64_t end = cut_at(part.begin + part.count);
    place += length;
    if (begin < end) use(r, begin, end - begin);
  }
}

}  // namespace gantry
