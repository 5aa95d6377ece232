#pragma once

#include <algorithm>
#include <cstdint>

namespace gantry {

// A range of elements.
struct Part {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// Returns part i of `count` elements in `parts` ranges. All but the last have equal lengths,
// multiples of 256 elements, so that every range is aligned for the widest loads. The last ones may
// be empty.
inline Part partition(std::int64_t count, int parts, int i) {
  constexpr std::int64_t kGrain = 256;
  const std::int64_t each = (count + parts * kGrain - 1) / (parts * kGrain) * kGrain;
  const std::int64_t begin = std::min(count, each * i);
  return {begin, std::min(each, count - begin)};
}

}  // namespace gantry
