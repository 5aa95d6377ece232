#include "collectives/host/connection_mpi.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/mpi_lock.hpp"
#include "collectives/bootstrap/mpi_world.hpp"

namespace gantry {

namespace {

constexpr int kOwnTag = 1;  // in a communicator of one group
constexpr int kTagsPerGroup = 2;
constexpr int kMinMaxTag = 32'767;  // every MPI has at least this one

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
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
  check(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
  place.shares = mpi_links_comm() != MPI_COMM_NULL ? 1 : 0;
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

// Returns the highest tag. Requires: mpi_lock() held.
std::int64_t max_tag() {
  int* most = nullptr;
  int is_known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &is_known),
        "MPI_Comm_get_attr");
  return is_known != 0 ? *most : kMinMaxTag;
}

// Creates a communicator of the group. Requires: mpi_lock() held.
MpiConnection open_own(const std::vector<int>& members) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MpiConnection connection{.comm = MPI_COMM_NULL, .members = {}, .tag = kOwnTag};
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &chosen),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, chosen, kOwnTag, &connection.comm),
        "MPI_Comm_create_group");
  check(MPI_Comm_set_errhandler(connection.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  for (std::size_t i = 0; i < members.size(); ++i)
    connection.members.push_back(static_cast<int>(i));
  return connection;
}

}  // namespace

std::string mpi_error_text(int status) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  return text;
}

bool can_link_by_mpi() {
  const std::lock_guard lock(mpi_lock());
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
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
    throw NotSupported(
        fmt::format("GANTRY_HOST_LINKS: mpi needs all ranks inside MPI_COMM_WORLD, but their ranks "
                    "there are {}",
                    fmt::join(members, ", ")));
  }
  const std::lock_guard lock(mpi_lock());
  int size = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const std::int64_t number = places[0].groups * size + members[0];
  const std::int64_t tag = number * kTagsPerGroup + 1;
  if (!share || tag + 1 > max_tag()) return open_own(members);
  return {.comm = mpi_links_comm(), .members = std::move(members), .tag = static_cast<int>(tag)};
}

}  // namespace gantry
