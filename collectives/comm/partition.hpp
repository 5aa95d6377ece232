#pragma once

#include <algorithm>
#include <cstdint>

namespace gantry {

// A run of elements.
struct Part {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// Part i of `count` elements cut into `parts` runs. All but the last have equal lengths, multiples
// of 256 elements, so that every run begins aligned for the widest loads; late runs may be empty.
inline Part partition(std::int64_t count, int parts, int i) {
  constexpr std::int64_t kGrain = 256;
  const std::int64_t each = (count + parts * kGrain - 1) / (parts * kGrain) * kGrain;
  const std::int64_t begin = std::min(count, each * i);
  return {begin, std::min(each, count - begin)};
}

}  // namespace gantry
