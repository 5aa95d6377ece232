// Memory of several devices that shows stores when a schedule says so, for testing signals.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace gantry::protocol {

// How many accesses of each actor come before something.
using Past = std::vector<std::uint32_t>;

inline void join(Past& past, const Past& other) {
  past.resize(std::max(past.size(), other.size()));
  for (std::size_t i = 0; i < other.size(); ++i) past[i] = std::max(past[i], other[i]);
}

// Note [Weak memory]
// An access may load words, compute a result, and store it in one or several places. Its load and
// each of its stores take effect at any time after the access was issued, and in any order relative
// to other accesses, with two exceptions:
//   * Accesses to the same bytes keep the order in which they were issued, if the earlier one
//     happens before the later one: both are of one actor, or a barrier is between them.
//   * A release stores after all accesses that happen before it have taken effect, including loads.
// So loads and stores may pass each other, also across an acquire, as on devices whose memory
// imposes no order by itself. A store of several parts happens part by part, in address order, and
// other accesses may happen in between. A store becomes visible to all actors at once. The tests
// here do not cover stores that some actors see earlier than others.
class WeakMemory {
 public:
  struct Bytes {
    const std::byte* at;
    std::size_t size;
  };
  using Make = std::function<void(std::byte* result)>;

  WeakMemory(std::size_t actors, std::mt19937_64& random)
      : random_(random), pasts_(actors, Past(actors)) {}

  const Past& past(int actor) const { return pasts_[static_cast<std::size_t>(actor)]; }
  // The actor learns of what is over there.
  void learn(int actor, const Past& other) { join(pasts_[static_cast<std::size_t>(actor)], other); }

  // Stores what `make` makes of `loads`, `size` bytes, to all of `places`, `part` bytes at a time.
  void store(int actor, std::vector<Bytes> loads, std::vector<std::byte*> places, std::size_t size,
             Make make, bool releases = false, std::size_t part = SIZE_MAX) {
    Past& known = pasts_[static_cast<std::size_t>(actor)];
    Access access;
    access.actor = actor;
    access.releases = releases;
    if (releases) access.past = known;
    access.loads = std::move(loads);
    for (std::byte* const place : places) access.places.push_back({place});
    access.part = std::min(part, size);
    access.result.resize(size);
    access.make = std::move(make);
    for (const auto& [id, earlier] : accesses_) {
      const bool is_known = earlier.number <= known[static_cast<std::size_t>(earlier.actor)];
      if (is_known && overlap(earlier, access)) access.after.push_back(id);
    }
    access.number = ++known[static_cast<std::size_t>(actor)];
    if (access.after.empty() && random_() % 2 == 0) load(access);
    accesses_.emplace(next_id_++, std::move(access));
  }
  // Stores `size` bytes at `value`.
  void store(int actor, std::byte* place, const void* value, std::size_t size,
             bool releases = false, std::size_t part = SIZE_MAX) {
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), value, size);
    store(
        actor, {}, {place}, size,
        [bytes](std::byte* result) { std::memcpy(result, bytes.data(), bytes.size()); }, releases,
        part);
  }

  bool is_settled() const { return accesses_.empty(); }
  // Calls f(id) for the accesses of which something may happen now.
  template <class F>
  void for_each_ready(const F& f) const {
    for (const auto& [id, access] : accesses_) {
      if (is_ready(access)) f(id);
    }
  }
  // Something that is left of a ready access happens: the load, or a part of one of the stores.
  void advance(std::uint64_t id) {
    const auto found = accesses_.find(id);
    Access& access = found->second;
    if (access.make) return load(access);
    const std::size_t which = random_() % access.places.size();
    Place& place = access.places[which];
    const std::size_t size = std::min(access.part, access.result.size() - place.stored);
    std::memcpy(place.at + place.stored, access.result.data() + place.stored, size);
    place.stored += size;
    if (place.stored < access.result.size()) return;
    access.places.erase(access.places.begin() + static_cast<std::ptrdiff_t>(which));
    if (access.places.empty()) accesses_.erase(found);
  }
  // The loads of all accesses of which is_of(actor) happen, and the stores to what is_here(place),
  // and what must come before these.
  template <class IsOf, class IsHere>
  void settle(const IsOf& is_of, const IsHere& is_here) {
    std::vector<std::uint64_t> picked;
    for (const auto& [id, access] : accesses_) {
      if (is_of(access.actor)) picked.push_back(id);
    }
    for (const std::uint64_t id : picked) {
      const auto found = accesses_.find(id);
      if (found == accesses_.end()) continue;
      const bool here = std::any_of(found->second.places.begin(), found->second.places.end(),
                                    [&](const Place& place) { return is_here(place.at); });
      if (here) {
        finish(id);
      } else if (found->second.make) {
        finish_before(id);
        load(found->second);
      }
    }
  }

 private:
  struct Place {
    std::byte* at;
    std::size_t stored = 0;  // bytes
  };
  struct Access {
    int actor = 0;
    std::uint32_t number = 0;  // of the actor's
    bool releases = false;
    Past past;  // what a release comes after
    std::vector<Bytes> loads;
    std::vector<Place> places;  // that are left to store to
    std::size_t part = 0;       // bytes that are stored at once
    std::vector<std::byte> result;
    Make make;                         // empty once it has loaded
    std::vector<std::uint64_t> after;  // earlier ones of the same bytes
  };

  static bool meet(Bytes a, Bytes b) { return a.at < b.at + b.size && b.at < a.at + a.size; }
  static bool overlap(const Access& a, const Access& b) {
    const auto stores = [](const Access& of, Bytes bytes) {
      return std::any_of(of.places.begin(), of.places.end(), [&](const Place& place) {
        return meet({place.at, of.result.size()}, bytes);
      });
    };
    const auto loads_what = [&](const Access& of, const Access& other) {
      return of.make && std::any_of(of.loads.begin(), of.loads.end(),
                                    [&](Bytes bytes) { return stores(other, bytes); });
    };
    return loads_what(a, b) || loads_what(b, a) ||
           std::any_of(b.places.begin(), b.places.end(), [&](const Place& place) {
             return stores(a, {place.at, b.result.size()});
           });
  }

  static void load(Access& access) {
    access.make(access.result.data());
    access.make = nullptr;
    access.loads.clear();
  }

  bool is_ready(const Access& access) const {
    const bool waits = std::any_of(access.after.begin(), access.after.end(),
                                   [&](std::uint64_t id) { return accesses_.contains(id); });
    if (waits) return false;
    if (!access.releases) return true;
    return std::none_of(accesses_.begin(), accesses_.end(), [&](const auto& other) {
      return other.second.number <= access.past[static_cast<std::size_t>(other.second.actor)];
    });
  }

  void finish(std::uint64_t id) {
    if (!accesses_.contains(id)) return;
    finish_before(id);
    while (accesses_.contains(id)) advance(id);
  }
  // What must be over before this access can go on.
  void finish_before(std::uint64_t id) {
    const Access& access = accesses_.at(id);
    std::vector<std::uint64_t> before = access.after;
    for (const auto& [other, earlier] : accesses_) {
      const auto actor = static_cast<std::size_t>(earlier.actor);
      if (access.releases && earlier.number <= access.past[actor]) before.push_back(other);
    }
    for (const std::uint64_t earlier : before) finish(earlier);
  }

  std::mt19937_64& random_;
  std::vector<Past> pasts_;  // of each actor: what it knows of
  std::map<std::uint64_t, Access> accesses_;
  std::uint64_t next_id_ = 0;
};

}  // namespace gantry::protocol
