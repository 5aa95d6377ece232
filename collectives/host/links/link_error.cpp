#include "collectives/host/links/link_error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry {

std::string forgery_text(int rank) {
  return fmt::format("a message of rank {} was changed on its way, or another process has sent it",
                     rank);
}

void LinkError::fail(const ControlMessage& why, std::string text, int from) {
  why_ = why;
  from_ = from;
  text_ = std::move(text);
  broadcast_(why);
  raise();
}

void LinkError::fail_late(const std::vector<int>& missing) {
  const std::chrono::duration<double> waited = group_.timeout;
  late_ = missing;
  fail({ControlMessage::Kind::late, missing.front()},
       fmt::format("collective: rank {} waited {} s, but rank(s) {} did not enter the operation "
                   "(GANTRY_COLL_TIMEOUT sets the deadline)",
                   group_.rank, waited.count(), fmt::join(missing, ", ")));
}

void LinkError::raise() const {
  const auto lost = [&](std::string_view how) {
    return PeerLostError(fmt::format("rank {} {}; the communicator of {} ranks is unusable",
                                     why_->failed_rank, how, group_.size),
                         why_->failed_rank);
  };
  switch (why_->kind) {
    case ControlMessage::Kind::late:
      throw TimeoutError(
          text_.empty() ? fmt::format("collective: rank {} did not enter the operation in time, "
                                      "says rank {} (GANTRY_COLL_TIMEOUT sets the deadline)",
                                      why_->failed_rank, from_)
                        : text_,
          late_.empty() ? std::vector<int>{why_->failed_rank} : late_);
    case ControlMessage::Kind::left:
      throw lost("has left the job");
    case ControlMessage::Kind::aborted:
      throw lost(text_.empty() ? "aborted" : "aborted: " + text_);
    case ControlMessage::Kind::lost:
    case ControlMessage::Kind::none:
    case ControlMessage::Kind::confirmed:
      break;
  }
  throw lost(text_.empty() ? "died or was cut off" : text_);
}

}  // namespace gantry
