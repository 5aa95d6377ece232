#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "core/bytes.hpp"

namespace gantry {

// The facts that ranks exchange first. Each rank receives the facts of all, so they are short.
struct RankFacts {
  std::string_view boot;
  std::string_view host;
  std::string_view device;
  std::string_view uuid;
  std::int32_t pid = 0;
  std::int32_t platform = 0;
  std::int32_t algorithm = 0;
  std::uint32_t table = 0;
  // A number that only ranks of one process have in common; 0: they do not open arrays.
  std::uint64_t address_space = 0;
  // A number of the rank, in all groups that are made from one.
  std::uint64_t member = 0;

  std::string bytes() const {
    ByteWriter<std::string> writer;
    writer.fixed_text(kGroupVersion, kVersionBytes);
    writer.text(boot).text(host).text(device).text(uuid);
    writer.number(pid).number(platform).number(algorithm).number(table);
    writer.number(address_space).number(member);
    return writer.bytes();
  }
  // Nothing if another version wrote the bytes, to which the result refers.
  static std::optional<RankFacts> parse(std::string_view bytes) {
    ByteReader reader(bytes);
    RankFacts facts;
    if (reader.fixed_text(kVersionBytes) != kGroupVersion) return std::nullopt;
    facts.boot = reader.text();
    facts.host = reader.text();
    facts.device = reader.text();
    facts.uuid = reader.text();
    facts.pid = reader.number<std::int32_t>();
    facts.platform = reader.number<std::int32_t>();
    facts.algorithm = reader.number<std::int32_t>();
    facts.table = reader.number<std::uint32_t>();
    facts.address_space = reader.number<std::uint64_t>();
    facts.member = reader.number<std::uint64_t>();
    return reader.finished() ? std::optional(facts) : std::nullopt;
  }

 private:
  static constexpr std::size_t kVersionBytes = 16;
};

// The facts of all ranks of a group, as they were exchanged. Texts are made when they are asked
// for: most ranks of a large group never need the texts of the others.
//
// Thread safety: any thread, after the constructor.
class RankTable {
 public:
  RankTable() = default;
  // `all` has RankFacts::bytes() of every rank.
  // Throws: InvalidArgument if another version wrote some; the error begins with `op`.
  // `name`: of the group, for descriptions(); empty: none.
  RankTable(std::vector<std::string> all, const std::string& op, std::string name = {});

  int size() const { return static_cast<int>(all_.size()); }
  RankFacts facts(int rank) const;
  // The name of every rank's machine.
  std::vector<std::string> machines() const;
  // "rank 3: host pid 4711 device uuid".
  std::string description(int rank) const;
  // The descriptions of all ranks, with the name of the group.
  const std::vector<std::string>& descriptions() const;
  // The rank whose process and device `facts` has. Threads of a process may share a device: then
  // the rank with the same member number. None: no rank, or several.
  std::optional<int> find(const RankFacts& facts) const;

 private:
  std::vector<std::string> all_;
  std::string name_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> descriptions_;  // empty until they are asked for
};

}  // namespace gantry
