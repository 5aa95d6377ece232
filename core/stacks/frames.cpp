#include <gantry/core/frames.hpp>

#include <algorithm>

namespace gantry {

const Frame* Frames::call_site() const noexcept {
  if (empty()) return nullptr;
  const auto found = std::ranges::find(list(), false, &Frame::is_internal);
  return found != end() ? &*found : &front();
}

}  // namespace gantry
