#include "collectives/traced_collective.hpp"

#include <numeric>
#include <string>
#include <utility>

#include <gantry/core/dtype.hpp>

#include "job/flight_file.hpp"

namespace gantry {
namespace {

// The bytes that this rank sends, if blocks have unequal sizes.
std::uint64_t bytes_of(const CollectiveCall& call) {
  const std::int64_t count =
      call.is_uneven()
          ? std::accumulate(call.send_counts.begin(), call.send_counts.end(), std::int64_t{0})
          : call.what.count;
  return static_cast<std::uint64_t>(count) * element_size(call.what.dtype);
}

Json::Object arguments_of(const CollectiveCall& call) {
  Json::Object arguments{
      {"call", call.what.str()},
      {"bytes", bytes_of(call)},
      {"number", flight::plain_number(static_cast<std::uint64_t>(call.what.call))}};
  if (!call.tag.empty()) arguments.emplace_back("tag", std::string(call.tag));
  return arguments;
}

}  // namespace

constinit thread_local Algorithm TracedCollective::algorithm_ = Algorithm::automatic;

void TracedCollective::keep(const CollectiveCall& call) noexcept {
  try {
    messages_.push_back(call);
  } catch (...) {  // without host memory the event lacks its messages
  }
}

void TracedCollective::end() noexcept {
  try {
    trace::TraceEvent event{.name = std::string(name_),
                            .category = "collective",
                            .track = trace::this_thread_track(),
                            .begin_ns = begin_ns_,
                            .duration_ns = trace::now_ns() - begin_ns_};
    if (call_ != nullptr) {
      event.arguments = arguments_of(*call_);
    } else {
      std::uint64_t bytes = 0;
      Json::Array messages;
      for (const CollectiveCall& message : messages_) {
        bytes += bytes_of(message);
        messages.emplace_back(arguments_of(message));
      }
      event.arguments = {{"messages", Json(std::move(messages))}, {"bytes", bytes}};
    }
    event.arguments.emplace_back("ranks", ranks_);
    event.arguments.emplace_back("algorithm", ranks_ == 1 ? "none" : name(algorithm_));
    trace::TraceLog::instance().add(std::move(event));
  } catch (...) {
    trace::TraceLog::instance().count_dropped(1);
  }
}

}  // namespace gantry
