#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

  std::string bytes() const {
    ByteWriter<std::string> writer;
    writer.fixed_text(kGroupVersion, kVersionBytes);
    writer.text(boot).text(host).text(device).text(uuid);
    writer.number(pid).number(platform).number(algorithm).number(table);
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
    return reader.finished() ? std::optional(facts) : std::nullopt;
  }

 private:
  static constexpr std::size_t kVersionBytes = 16;
};

}  // namespace gantry
