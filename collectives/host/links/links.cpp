#include "collectives/host/links/links.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/host/links/addresses.hpp"
#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

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
