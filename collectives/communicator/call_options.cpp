#include "collectives/communicator/call_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include <gantry/core/error.hpp>

#include "collectives/selection/selector.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

constexpr std::size_t kMostTagBytes = sizeof(flight::Record::tag) - 1;
constexpr auto kMostTimeout = std::chrono::milliseconds(UINT32_MAX);

Algorithm algorithm_of(std::string_view text, std::string_view op) {
  if (text.empty() || text == name(Algorithm::automatic)) return Algorithm::automatic;
  const auto found =
      std::ranges::find(kAllAlgorithms, text, [](Algorithm algorithm) { return name(algorithm); });
  if (found != std::end(kAllAlgorithms)) return *found;
  throw InvalidArgument(fmt::format("{}: expected an algorithm, auto, {}, but got '{}'", op,
                                    algorithm_names(", "), escape_control_characters(text)));
}

}  // namespace

void set_options(CollectiveCall& call, const CollectiveOptions& options, std::string_view op) {
  const Algorithm algorithm = algorithm_of(options.algorithm, op);
  if (options.blocks < 0 || options.blocks > kMostTableBlocks) {
    throw InvalidArgument(fmt::format("{}: expected 0 to {} blocks, but got {}", op,
                                      kMostTableBlocks, options.blocks));
  }
  if (options.tag.size() > kMostTagBytes) {
    throw InvalidArgument(fmt::format("{}: expected a tag of at most {} bytes, but got {}", op,
                                      kMostTagBytes, options.tag.size()));
  }
  if (options.timeout.count() < 0) {
    throw InvalidArgument(fmt::format("{}: expected a timeout of 0 or more, but got {} ms", op,
                                      options.timeout.count()));
  }
  if (algorithm != Algorithm::automatic && !can_serve(algorithm, call.what.kind)) {
    throw InvalidArgument(
        fmt::format("{}: expected an algorithm that serves the call, but got {}: it does not do "
                    "this operation",
                    op, name(algorithm)));
  }
  call.what.reproducible = options.reproducible ? 1 : 0;
  // A NaN has many bit patterns, and ranks compare bits.
  call.what.scale =
      std::isnan(options.scale) ? std::numeric_limits<double>::quiet_NaN() : options.scale;
  call.what.algorithm = algorithm;
  call.what.blocks = static_cast<std::uint8_t>(options.blocks);
  call.tag = options.tag;
  call.timeout = std::min(options.timeout, kMostTimeout);
}

}  // namespace gantry
