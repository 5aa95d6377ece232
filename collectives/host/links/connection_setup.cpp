// The collective part of connecting a group.
#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "collectives/host/links/connections.hpp"
#include "core/processes/descriptor_limit.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

// Long enough for late ranks, short enough for a fallback to MPI.
constexpr std::chrono::milliseconds kMostTimeout = std::chrono::seconds(30);
// Of this process, meanwhile.
constexpr std::size_t kOtherDescriptors = 64;

}  // namespace

std::unique_ptr<Connections> connect_group(Bootstrap& bootstrap, const LinkGroup& group) {
  // Later collectives connect every pair of ranks.
  (void)make_room_for_descriptors(kPurposes * static_cast<std::size_t>(group.size) +
                                  kOtherDescriptors);
  RankAddress mine;
  std::string failure;
  LinkDescriptors descriptors;
  try {
    if (group.where != Neighbourhood::one_user) require_message_tags("host links");
    descriptors = open_descriptors(mine, group.where);
  } catch (const Error& error) {
    failure = error.what();
  }
  std::vector<std::string> addresses =
      bootstrap.all_gather(failure.empty() ? mine.str() : std::string());
  // No rank tries to connect to a failed rank.
  const bool all_listen = std::none_of(addresses.begin(), addresses.end(),
                                       [](const std::string& text) { return text.empty(); });
  std::unique_ptr<Connections> connections;
  if (all_listen) {
    const auto deadline = Connections::Clock::now() + std::min(group.timeout, kMostTimeout);
    try {
      connections =
          std::make_unique<Connections>(group, std::move(addresses), std::move(descriptors));
      connections->connect_neighbours(deadline);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  std::string all;
  const std::vector<std::string> failures = bootstrap.all_gather(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    all += fmt::format(" rank {}: {};", rank,
                       escape_control_characters(failures[rank], LineEnds::keep));
  }
  if (!all.empty()) {
    all.back() = '.';
    throw Error(
        fmt::format("Failed connecting {} ranks by TCP:{} GANTRY_HOST_INTERFACE names the "
                    "network interfaces to use",
                    group.size, all));
  }
  return connections;
}

}  // namespace gantry
