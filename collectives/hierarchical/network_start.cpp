#include "collectives/hierarchical/network_start.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/processes/suspend_aware_timeout.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

std::pair<int, std::string> first_failure(Bootstrap& everyone, const std::string& mine) {
  const std::vector<std::string> all = everyone.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty())
      return {static_cast<int>(rank), escape_control_characters(all[rank], LineEnds::keep)};
  }
  return {-1, {}};
}

namespace {

// Throws if the process of a rank is stopped.
void require_running(LinkMonitor& monitor, const GroupTimeout& timeout) {
  std::vector<int> stopped;
  int rank = 0;
  for (const auto& progress : monitor.probe()) {
    if (!progress) stopped.push_back(rank);
    ++rank;
  }
  if (const std::exception_ptr why = monitor.failure()) std::rethrow_exception(why);
  if (stopped.empty()) return;
  throw TimeoutError(
      fmt::format("starting NCCL: rank(s) {} did not come within {} ({})", fmt::join(stopped, ", "),
                  duration_text(timeout.get()), timeout.source()),
      stopped);
}

}  // namespace

std::unique_ptr<Transport> start_nccl(Bootstrap& everyone, LinkMonitor& monitor,
                                      const GroupTimeout& timeout, const MakeNccl& make,
                                      std::string& why_not) {
  SuspendAwareTimeout deadline(timeout.get());
  const auto check = [&] {
    if (deadline.has_expired()) {
      require_running(monitor, timeout);
      deadline.restart();
    }
    if (const std::exception_ptr why = monitor.failure()) std::rethrow_exception(why);
    if (const int rank = monitor.rank_without_nccl(); rank >= 0)
      throw Error(fmt::format("rank {} did not start NCCL", rank));
  };
  std::unique_ptr<Transport> nccl;
  std::string failure;
  bool is_cause = false;
  try {
    nccl = make(check);
  } catch (const PeerLostError&) {
    throw;
  } catch (const std::exception& error) {
    const auto* const late = dynamic_cast<const TimeoutError*>(&error);
    if (late != nullptr && !late->ranks().empty()) {
      monitor.report_late(late->ranks().front());
      throw;
    }
    failure = error.what();
    is_cause = monitor.rank_without_nccl() < 0;  // else it gave up because of another rank
    monitor.report_no_nccl();
  }
  const auto cause = first_failure(everyone, is_cause ? failure : std::string());
  const auto any = first_failure(everyone, failure);
  if (any.first < 0) return nccl;
  const auto& [rank, why] = cause.first >= 0 ? cause : any;
  why_not = fmt::format("rank {}: {}", rank, why);
  return nullptr;
}

}  // namespace gantry
