#include "job/elastic_job.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/env/settings.hpp"

namespace gantry {
namespace {

constexpr const char* kArrivalsKey = "gantry/elastic/arrivals";
constexpr const char* kJoinedKey = "gantry/elastic/joined";
constexpr const char* kStartedKey = "gantry/elastic/started";
constexpr const char* kDepartedKey = "gantry/elastic/departed";
constexpr const char* kHolderPrefix = "gantry/elastic/holder/";

// GANTRY_ELASTIC for a job of `size` ranks, if it is set.
std::optional<ElasticTerms> read_terms(int size) {
  const std::string text = env::kElastic.text();
  if (text.empty()) return std::nullopt;
  const std::size_t colon = text.find(':');
  const std::string fewest = text.substr(0, colon);
  const std::string most = colon == std::string::npos ? "" : text.substr(colon + 1);
  return ElasticTerms{
      .fewest = static_cast<int>(env::parse_int(fewest, env::kElastic.name(), 1, size)),
      .most = static_cast<int>(env::parse_int(most, env::kElastic.name(), size, size))};
}

// The numbers under `key`.
std::vector<int> read_list(Store& store, const std::string& key) {
  std::vector<int> ids;
  std::istringstream text(store.try_get(key).value_or(""));
  for (int id = 0; text >> id;) ids.push_back(id);
  return ids;
}

// Adds `id` to the numbers under `key`, once, or removes it.
void change_list(Store& store, const char* key, int id, bool is_member) {
  for (std::string list = store.try_get(key).value_or("");;) {
    std::string wanted;
    std::istringstream ids(list);
    for (int other = 0; ids >> other;) {
      if (other != id) wanted += fmt::format("{} ", other);
    }
    if (is_member) wanted += fmt::format("{} ", id);
    const std::string now = store.compare_and_set(key, list, wanted);
    if (now == wanted) return;
    list = now;
  }
}

}  // namespace

std::optional<ElasticTerms> elastic_terms(const ProcessIdentity& identity) {
  if (identity.source != "glaunch") return std::nullopt;
  std::optional<ElasticTerms> terms = read_terms(identity.world_size);
  if (terms) terms->replacement = static_cast<int>(env::kRestart.get().value_or(0));
  return terms;
}

bool is_elastic_by_user(const ProcessIdentity& identity) {
  const std::string& source = identity.source;
  const bool has_own_terms = source == "glaunch" || source == "connect";
  if (has_own_terms || identity.world_size == 1 || !read_terms(identity.world_size)) return false;
  // mpirun ends a job that loses a rank, and its ranks meet by MPI.
  if (source != "openmpi" && !identity.rendezvous.empty()) return true;
  throw NotSupported(fmt::format(
      "GANTRY_ELASTIC: expected a job whose ranks meet at an address, but got one of {}{}", source,
      source == "openmpi" ? ", whose mpirun ends a job that loses a rank" : "; set GANTRY_RDZV"));
}

void announce_arrival(Store& store, const Arrival& arrival) {
  const std::string line = fmt::format("{} {} {}\n", arrival.rank, arrival.id, arrival.version);
  // One key, so that a process that dies meanwhile leaves all or nothing.
  for (std::string list = store.try_get(kArrivalsKey).value_or("");;) {
    const std::string now = store.compare_and_set(kArrivalsKey, list, list + line);
    if (now == list + line) return;
    list = now;
  }
}

std::vector<Arrival> arrivals(Store& store) {
  std::vector<Arrival> result;
  std::istringstream text(store.try_get(kArrivalsKey).value_or(""));
  for (Arrival one; text >> one.rank >> one.id >> one.version;) result.push_back(one);
  return result;
}

void set_joined(Store& store, int id, bool joined) { change_list(store, kJoinedKey, id, joined); }
std::vector<int> joined_ids(Store& store) { return read_list(store, kJoinedKey); }

void note_started(Store& store, int id) { change_list(store, kStartedKey, id, true); }
std::vector<int> started_ids(Store& store) { return read_list(store, kStartedKey); }
void note_departed(Store& store, int id) { change_list(store, kDepartedKey, id, true); }
std::vector<int> departed_ids(Store& store) { return read_list(store, kDepartedKey); }

void set_holder(Store& store, int rank, int id) {
  store.set(fmt::format("{}{}", kHolderPrefix, rank), std::to_string(id));
}
std::optional<int> holder_of(Store& store, int rank) {
  const std::vector<int> ids = read_list(store, fmt::format("{}{}", kHolderPrefix, rank));
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace gantry
