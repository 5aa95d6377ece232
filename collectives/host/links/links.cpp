#include "collectives/host/links/links.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/host/links/addresses.hpp"
#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"

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

std::exception_ptr LinkError::error_of(const LinkGroup& group, const ControlMessage& why,
                                       const std::string& text, int from) {
  try {
    LinkError(group, [](const ControlMessage&) {}).fail(why, text, from);
  } catch (...) {
    return std::current_exception();
  }
}

void LinkError::fail_late(const std::vector<int>& missing) {
  const std::chrono::duration<double> waited = group_.timeout.get();
  late_ = missing;
  fail(ControlMessage::of_late(missing.front(), group_.rank, group_.timeout.kind_of_source()),
       fmt::format("collective: rank {} waited {} s, but rank(s) {} did not enter the operation "
                   "({})",
                   group_.rank, waited.count(), fmt::join(missing, ", "), group_.timeout.source()));
}

void LinkError::raise() const {
  const bool has_author = why_->author >= 0 && why_->author < group_.size;
  const int author = has_author ? why_->author : from_;
  const auto lost = [&](std::string_view how) {
    return PeerLostError(fmt::format("rank {} {}; the communicator of {} ranks is unusable",
                                     why_->failed_rank, how, group_.size),
                         why_->failed_rank);
  };
  switch (why_->kind) {
    case ControlMessage::Kind::late:
      throw TimeoutError(
          text_.empty() ? fmt::format("collective: rank {} did not enter the operation in time, "
                                      "says rank {} ({})",
                                      why_->failed_rank, author, deadline_text(why_->source))
                        : text_,
          late_.empty() ? std::vector<int>{why_->failed_rank} : late_);
    case ControlMessage::Kind::left:
      throw lost("has left the job");
    case ControlMessage::Kind::aborted:
      throw lost(text_.empty() ? "aborted" : "aborted: " + text_);
    case ControlMessage::Kind::lost:
    case ControlMessage::Kind::none:
    case ControlMessage::Kind::confirmed:
    case ControlMessage::Kind::probe:
    case ControlMessage::Kind::alive:
    case ControlMessage::Kind::no_nccl:
      break;
  }
  throw lost(text_.empty() ? "died or was cut off" : text_);
}

std::unique_ptr<HostLinks> make_host_links(Bootstrap& bootstrap, LinkGroup group) {
  const std::string wanted = env::kHostLinks.get();
  const bool may_link_by_mpi = wanted != "tcp" && can_link_by_mpi();
  const std::string here = this_machine();
  const std::string mine = fmt::format("{} {} {} {}", wanted, here, this_machine_and_user(),
                                       may_link_by_mpi ? "mpi" : "no");
  const std::vector<std::string> all = bootstrap.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string theirs = all[rank].substr(0, all[rank].find(' '));
    if (theirs != wanted) {
      throw InvalidArgument(fmt::format(
          "GANTRY_HOST_LINKS: expected one value on all ranks, but rank {} has '{}' and rank {} "
          "has '{}'",
          group.rank, wanted, rank, escape_control_characters(theirs)));
    }
  }
  const auto have_all = [&](const std::string& word) {
    return std::all_of(all.begin(), all.end(), [&](const std::string& text) {
      return text.find(fmt::format(" {} ", word)) != std::string::npos;
    });
  };
  if (have_all(here)) group.where = Neighbourhood::one_machine;
  if (have_all(this_machine_and_user()) && wanted != "tcp") group.where = Neighbourhood::one_user;
  if (wanted == "mpi") return make_mpi_links(bootstrap, group);
  const bool have_mpi = std::all_of(all.begin(), all.end(),
                                    [](const std::string& text) { return text.ends_with(" mpi"); });
  if (wanted == "tcp" || !have_mpi) return make_tcp_links(bootstrap, group);
  try {
    return make_tcp_links(bootstrap, group);
  } catch (const PeerLostError&) {
    throw;
  } catch (const TimeoutError&) {
    throw;
  } catch (const Error& error) {
    // Every rank got this error from the same exchange, and falls back too.
    logging::warn(fmt::format("{}; MPI carries messages between hosts instead", error.what()));
  }
  return make_mpi_links(bootstrap, group);
}

}  // namespace gantry
