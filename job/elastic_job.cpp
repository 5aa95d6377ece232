#include "job/elastic_job.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>

#include <gantry/core/env.hpp>
#include <gantry/extend/parse_number.hpp>

#include "core/env/settings.hpp"

namespace gantry {
namespace {

constexpr const char* kArrivalsKey = "gantry/elastic/arrivals";
constexpr const char* kJoinedKey = "gantry/elastic/joined";

}  // namespace

std::optional<ElasticTerms> elastic_terms(const ProcessIdentity& identity) {
  const std::string text = env::kElastic.text();
  if (text.empty() || identity.source != "glaunch") return std::nullopt;
  const std::size_t colon = text.find(':');
  const std::string fewest = text.substr(0, colon);
  const std::string most = colon == std::string::npos ? "" : text.substr(colon + 1);
  const int size = identity.world_size;
  return ElasticTerms{static_cast<int>(env::parse_int(fewest, env::kElastic.name(), 1, size)),
                      static_cast<int>(env::parse_int(most, env::kElastic.name(), size, size)),
                      static_cast<int>(env::kRestart.get().value_or(0))};
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

void set_joined(Store& store, int id, bool joined) {
  for (std::string list = store.try_get(kJoinedKey).value_or("");;) {
    std::string wanted;
    std::istringstream ids(list);
    for (int other = 0; ids >> other;) {
      if (other != id) wanted += fmt::format("{} ", other);
    }
    if (joined) wanted += fmt::format("{} ", id);
    const std::string now = store.compare_and_set(kJoinedKey, list, wanted);
    if (now == wanted) return;
    list = now;
  }
}

std::vector<int> joined_ids(Store& store) {
  std::vector<int> ids;
  std::istringstream text(store.try_get(kJoinedKey).value_or(""));
  for (int id = 0; text >> id;) ids.push_back(id);
  return ids;
}

}  // namespace gantry
