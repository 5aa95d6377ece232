#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gantry/extend/store.hpp>
#include <gantry/job/process_identity.hpp>

namespace gantry {

/// The numbers of a rank in an elastic job: glaunch --elastic tells them, or the job's store.
///
/// A process of a job has a number in the job's store. A replacement has the rank of the process
/// before it, and a new number: the store knows the old number as lost.
struct ElasticTerms {
  int fewest = 1;       ///< ranks with which the job goes on
  int most = 1;         ///< ranks of the whole job
  int replacement = 0;  ///< 0: a process of the job's start; else the number of the replacement

  /// The number in the store of the process that has `rank`.
  [[nodiscard]] int id_of(int rank) const {
    return replacement == 0 ? rank : most + replacement - 1;
  }
};

/// Reads GANTRY_ELASTIC and GANTRY_RESTART; none without glaunch --elastic.
/// Throws: InvalidArgument.
[[nodiscard]] std::optional<ElasticTerms> elastic_terms(const ProcessIdentity& identity);

/// True for a rank of a job that meets at a store, which glaunch does not serve, if the user set
/// GANTRY_ELASTIC. Throws: InvalidArgument for malformed numbers; NotSupported for a job without a
/// store.
[[nodiscard]] bool is_elastic_by_user(const ProcessIdentity& identity);

/// The store's key that is there once the job's first group is complete.
inline constexpr const char* kFormedKey = "gantry/elastic/formed";
/// A replacement that came to join a group.
struct Arrival {
  int rank = 0;
  int id = 0;           ///< its number in the store
  std::string version;  ///< of what ranks tell each other
};

/// Announces `arrival`.
void announce_arrival(Store& store, const Arrival& arrival);
/// All replacements that came, in that order.
[[nodiscard]] std::vector<Arrival> arrivals(Store& store);
/// Notes that the replacement with number `id` is in a group, or about to be, or is not after all.
void set_joined(Store& store, int id, bool joined);
/// The numbers of the replacements that are.
[[nodiscard]] std::vector<int> joined_ids(Store& store);

/// Notes, in a job without a launcher, that process `id` came to make the job's first group.
void note_started(Store& store, int id);
[[nodiscard]] std::vector<int> started_ids(Store& store);
/// Notes, in a job without a launcher, that process `id` leaves in order.
void note_departed(Store& store, int id);
[[nodiscard]] std::vector<int> departed_ids(Store& store);

/// Notes that the replacement with number `id` has `rank`: processes before it have lost the rank.
void set_holder(Store& store, int rank, int id);
/// The number of the newest replacement that got `rank`; none if there was none.
[[nodiscard]] std::optional<int> holder_of(Store& store, int rank);

}  // namespace gantry
