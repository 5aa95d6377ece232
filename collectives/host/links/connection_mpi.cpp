#include "collectives/host/links/connection_mpi.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/mpi.hpp"
#include "collectives/mpi/library.hpp"

namespace gantry {

namespace {

constexpr int kOwnTag = 1;  // in a communicator of one group
constexpr int kTagsPerGroup = 2;

void check(int status, const char* call) {
  if (status == 0) return;
  throw Error(fmt::format("Failed linking hosts by MPI: {} [{}]", mpi_error_text(status), call));
}

// The facts that the ranks of a group exchange.
struct MpiRank {
  int rank = -1;            // in MPI_COMM_WORLD
  int shares = 0;           // 1: the rank has mpi_links_comm()
  std::int64_t groups = 0;  // groups whose first rank it was
};

MpiRank own_rank() {
  static std::int64_t groups = 0;
  MpiRank place;
  if (!can_link_by_mpi()) return place;
  const std::lock_guard lock(mpi_lock());
  check(mpi().comm_rank(mpi().world, &place.rank), "MPI_Comm_rank");
  place.shares = mpi_links_comm() != MpiComm{} ? 1 : 0;
  place.groups = groups++;
  return place;
}

std::vector<MpiRank> all_ranks(Bootstrap& bootstrap) {
  const MpiRank mine = own_rank();
  std::vector<MpiRank> places;
  for (const std::string& text :
       bootstrap.all_gather(fmt::format("{} {} {}", mine.rank, mine.shares, mine.groups))) {
    MpiRank& place = places.emplace_back();
    std::istringstream(text) >> place.rank >> place.shares >> place.groups;
  }
  return places;
}

// Creates a communicator of the group. Requires: mpi_lock() held.
MpiConnection open_own(const std::vector<int>& members) {
  MpiConnection connection{.comm = {}, .members = {}, .tag = kOwnTag};
  check(mpi().comm_create_group(members.data(), static_cast<int>(members.size()), kOwnTag,
                                &connection.comm),
        "MPI_Comm_create_group");
  check(mpi().comm_return_errors(connection.comm), "MPI_Comm_set_errhandler");
  for (std::size_t i = 0; i < members.size(); ++i)
    connection.members.push_back(static_cast<int>(i));
  return connection;
}

}  // namespace

bool can_link_by_mpi() {
  // MPI that is not in this process is not initialized.
  if (!has_loaded_mpi() || !mpi_module().problem().empty()) return false;
  const std::lock_guard lock(mpi_lock());
  int initialized = 0;
  int finalized = 0;
  mpi().initialized(&initialized);
  mpi().finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

MpiConnection open_mpi_connection(Bootstrap& bootstrap) {
  const std::vector<MpiRank> places = all_ranks(bootstrap);
  std::vector<int> members;
  bool share = true;
  for (const MpiRank& place : places) {
    members.push_back(place.rank);
    share = share && place.shares != 0;
  }
  if (std::find(members.begin(), members.end(), -1) != members.end()) {
    mpi_module().require("GANTRY_HOST_LINKS=mpi");
    throw NotSupported(
        fmt::format("GANTRY_HOST_LINKS: mpi needs all ranks inside MPI_COMM_WORLD, but their ranks "
                    "there are {}",
                    fmt::join(members, ", ")));
  }
  const std::lock_guard lock(mpi_lock());
  int size = 0;
  check(mpi().comm_size(mpi().world, &size), "MPI_Comm_size");
  const std::int64_t number = places[0].groups * size + members[0];
  const std::int64_t tag = number * kTagsPerGroup + 1;
  int most = 0;
  check(mpi().max_tag(&most), "MPI_Comm_get_attr");
  if (!share || tag + 1 > most) return open_own(members);
  return {.comm = mpi_links_comm(), .members = std::move(members), .tag = static_cast<int>(tag)};
}

}  // namespace gantry
