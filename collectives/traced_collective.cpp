#include "collectives/traced_collective.hpp"

#include <gantry/core/dtype.hpp>

namespace gantry {

void TracedCollective::begin() noexcept {
  algorithm_ = Algorithm::automatic;
  begin_ns_ = trace::now_ns();
}

void TracedCollective::end() noexcept {
  try {
    trace::TraceEvent event{.name = std::string(name(what_.kind)),
                            .category = "collective",
                            .track = trace::this_thread_track(),
                            .begin_ns = begin_ns_,
                            .duration_ns = trace::now_ns() - begin_ns_};
    const auto bytes = static_cast<std::uint64_t>(what_.count) * element_size(what_.dtype);
    event.arguments = {{"call", what_.str()},
                       {"bytes", bytes},
                       {"ranks", ranks_},
                       {"number", what_.call},
                       {"algorithm", ranks_ == 1 ? "none" : name(algorithm_)}};
    trace::TraceLog::instance().add(std::move(event));
  } catch (...) {
    trace::TraceLog::instance().count_dropped(1);
  }
}

}  // namespace gantry
