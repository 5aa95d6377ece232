#include "collectives/host/notice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include <gantry/core/error.hpp>

namespace gantry {

void raise_notice(const Notice& why, int from, const std::string& text, int size) {
  const auto lost = [&](std::string_view how) {
    return PeerLostError(
        fmt::format("rank {} {}; the communicator of {} ranks is unusable", why.culprit, how, size),
        why.culprit);
  };
  switch (why.kind) {
    case Notice::Kind::late:
      if (!text.empty()) throw TimeoutError(text);
      throw TimeoutError(
          fmt::format("collective: rank {} did not enter the operation in time, says rank {} "
                      "(GANTRY_COLL_TIMEOUT sets the deadline)",
                      why.culprit, from));
    case Notice::Kind::left:
      throw lost("has left the job");
    case Notice::Kind::aborted:
      throw lost(text.empty() ? "aborted" : "aborted: " + text);
    case Notice::Kind::lost:
    case Notice::Kind::none:
      break;
  }
  throw lost(text.empty() ? "died or was cut off" : text);
}

std::string lateness_text(const LinkGroup& group, const std::vector<int>& missing) {
  return fmt::format(
      "collective: rank {} waited {} s, but rank(s) {} did not enter the operation "
      "(GANTRY_COLL_TIMEOUT sets the deadline)",
      group.rank, std::chrono::duration<double>(group.timeout).count(), fmt::join(missing, ", "));
}

}  // namespace gantry
