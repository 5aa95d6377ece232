#include <gantry/collectives/collective_mismatch.hpp>

#include <utility>

#include "core/error_payload.hpp"

namespace gantry {

struct CollectiveMismatch::Sides {
  std::vector<int> ranks;
  std::vector<std::string> calls;
};

CollectiveMismatch::CollectiveMismatch(const std::string& message, std::vector<int> ranks,
                                       std::vector<std::string> calls, std::source_location where)
    : InvalidArgument(message, {}, where),
      sides_(std::make_shared<const Sides>(Sides{std::move(ranks), std::move(calls)})) {}

const std::vector<int>& CollectiveMismatch::ranks() const noexcept {
  return detail::payload_or_empty(sides_).ranks;
}
const std::vector<std::string>& CollectiveMismatch::calls() const noexcept {
  return detail::payload_or_empty(sides_).calls;
}

}  // namespace gantry
