// The tables of a Selector as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>

#include "collectives/selection/selector.hpp"
#include "core/env/settings.hpp"
#include "core/files/regular_file.hpp"
#include "core/text/json.hpp"

namespace gantry {

namespace {

constexpr std::size_t kMostTableBytes = std::size_t{16} << 20;

[[noreturn]] void fail(const std::string& where, std::string_view expected,
                       const std::string& got) {
  throw InvalidArgument(
      fmt::format("collective table: {}: expected {}, but got {}", where, expected, got));
}

// A value as an error text shows it.
std::string shown(const Json& value) {
  std::string text = value.dump();
  return text.size() > 60 ? text.substr(0, 57) + "…" : text;
}

const Json& required(const Json& object, const char* key, const std::string& where) {
  const Json* const field = object.find(key);
  if (field == nullptr) fail(where, fmt::format("a field \"{}\"", key), shown(object));
  return *field;
}

void require_only(const Json& object, std::initializer_list<std::string_view> known,
                  const std::string& where) {
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      fail(where, fmt::format("only the fields {}", fmt::join(known, ", ")), '"' + key + '"');
    }
  }
}

std::int64_t whole_number(const Json& value, std::int64_t least, std::int64_t most,
                          const std::string& where) {
  const std::optional<std::int64_t> number = value.integer();
  if (!number || *number < least || *number > most) {
    fail(where, fmt::format("a whole number from {} to {}", least, most), shown(value));
  }
  return *number;
}

Algorithm algorithm_of(const Json& value, CollectiveKind kind, bool registered,
                       const std::string& where) {
  std::vector<std::string_view> allowed;
  const auto is_it = [&](Algorithm algorithm) {
    allowed.push_back(name(algorithm));
    return value == name(algorithm);
  };
  if (registered && is_it(Algorithm::automatic)) return Algorithm::automatic;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (!can_serve(algorithm, kind) || needs_registration(algorithm) != registered) continue;
    if (is_it(algorithm)) return algorithm;
  }
  fail(where, fmt::format("one of {}", fmt::join(allowed, ", ")), shown(value));
}

std::optional<CollectiveKind> kind_of(std::string_view text) {
  for (int i = 0; i < kCollectiveKinds; ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    if (kind != CollectiveKind::barrier && text == name(kind)) return kind;
  }
  return std::nullopt;
}

std::vector<SelectorRow> read_rows(const Json& list, CollectiveKind kind, bool registered,
                                   const std::string& where) {
  if (!list.is_array() || list.size() == 0) fail(where, "a list of rows", shown(list));
  std::vector<SelectorRow> rows;
  std::int64_t below = -1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    const Json& row = list.at(i);
    if (!row.is_object()) fail(here, "a row {…}", shown(row));
    require_only(row, {"up_to_bytes", "algorithm", "blocks"}, here);
    SelectorRow read;
    if (i + 1 < list.size()) {
      read.up_to_bytes = whole_number(required(row, "up_to_bytes", here), below + 1, INT64_MAX - 1,
                                      here + ".up_to_bytes");
    } else if (row.contains("up_to_bytes")) {
      fail(here, "a last row for every size, without up_to_bytes", shown(row));
    }
    below = read.up_to_bytes;
    read.choice.algorithm =
        algorithm_of(required(row, "algorithm", here), kind, registered, here + ".algorithm");
    if (row.contains("blocks")) {
      read.choice.blocks = static_cast<std::uint16_t>(
          whole_number(row.at("blocks"), 1, kMostTableBlocks, here + ".blocks"));
    }
    rows.push_back(read);
  }
  return rows;
}

// Rows of several operations.
using KindRows = std::vector<std::pair<CollectiveKind, std::vector<SelectorRow>>>;

// One table of the file, checked.
struct Table {
  std::string device;
  int ranks = 0;
  KindRows rows;
  KindRows registered;
};

KindRows read_kinds(const Json& kinds, bool registered, const std::string& where) {
  if (!kinds.is_object()) fail(where, "operations with their rows", shown(kinds));
  KindRows result;
  for (const auto& [key, rows] : kinds.members()) {
    const std::optional<CollectiveKind> kind = kind_of(key);
    if (!kind) fail(where, "the name of an operation", '"' + key + '"');
    result.emplace_back(*kind, read_rows(rows, *kind, registered, where + "." + key));
  }
  return result;
}

Table read_table(const Json& object, const std::string& where) {
  if (!object.is_object()) fail(where, "a table {…}", shown(object));
  require_only(object, {"device", "ranks", "tables", "registered"}, where);
  Table table;
  const Json& device = required(object, "device", where);
  if (!device.is_string() || device.as<std::string>().empty()) {
    fail(where + ".device", "a device's name, or \"*\"", shown(device));
  }
  table.device = device.as<std::string>();
  table.ranks = static_cast<int>(
      whole_number(required(object, "ranks", where), 2, 1 << 20, where + ".ranks"));
  table.rows = read_kinds(required(object, "tables", where), false, where + ".tables");
  if (object.contains("registered")) {
    table.registered = read_kinds(object.at("registered"), true, where + ".registered");
  }
  return table;
}

std::vector<Table> read_tables(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const InvalidArgument& error) {  // "parse error at line 3, column 7: …"
    throw InvalidArgument(
        fmt::format("collective table: expected JSON, but got a {}", error.what()));
  }
  std::vector<Table> tables;
  if (!json.is_array()) return {read_table(json, "$")};
  for (std::size_t i = 0; i < json.size(); ++i) {
    tables.push_back(read_table(json.at(i), fmt::format("$[{}]", i)));
  }
  if (tables.empty()) fail("$", "at least one table", "[]");
  return tables;
}

const Table& nearest(const std::vector<Table>& tables, int ranks, std::string_view device) {
  const auto holds = [&](std::string_view wanted) {
    return std::any_of(tables.begin(), tables.end(),
                       [&](const Table& table) { return table.device == wanted; });
  };
  const std::string wanted(holds(device) ? device
                                         : (holds("*") ? "*" : std::string_view(tables[0].device)));
  const Table* best = nullptr;
  for (const Table& table : tables) {
    if (table.device != wanted) continue;
    const bool better = best == nullptr || (table.ranks <= ranks && best->ranks > ranks) ||
                        (table.ranks <= ranks ? table.ranks > best->ranks
                                              : best->ranks > ranks && table.ranks < best->ranks);
    if (better) best = &table;
  }
  return *best;
}

std::string read_table(const std::string& path) {
  FileContent content = read_regular_file(path, kMostTableBytes);
  if (content.ok()) return std::move(content.text);
  throw InvalidArgument(fmt::format("GANTRY_COLL_TABLE: expected a readable file, but got '{}': {}",
                                    path, content.problem));
}

}  // namespace

Selector Selector::parse(std::string_view json, int ranks, std::string_view device_name) {
  const std::vector<Table> tables = read_tables(json);
  const Table& table = nearest(tables, ranks, device_name);
  Selector selector;
  selector.device_ = table.device;
  selector.ranks_ = table.ranks;
  selector.group_ranks_ = ranks;
  for (const auto& [kind, rows] : table.rows) selector.set(kind, rows);
  for (const auto& [kind, rows] : table.registered) selector.set(kind, rows, true);
  return selector;
}

Selector Selector::load(int ranks, std::string_view device_name) {
  const std::string path = env::kCollTable.text();
  Selector selector;
  if (path.empty()) {
    selector = parse(kShippedTables, ranks, device_name);
  } else {
    const std::string text = read_table(path);
    try {
      selector = parse(text, ranks, device_name);
      selector.is_from_file_ = true;
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("GANTRY_COLL_TABLE={}: {}", path, error.what()));
    }
  }
  selector.rule(env::kCollAlgo.text());
  return selector;
}

std::string Selector::to_json() const {
  // One row a line: these files are read and compared by people.
  const auto text_of = [&](bool registered) {
    std::string text;
    for (int i = 0; i < kCollectiveKinds; ++i) {
      const auto kind = static_cast<CollectiveKind>(i);
      const std::vector<SelectorRow>& list = rows(kind, registered);
      if (list.empty()) continue;
      text += fmt::format("{}\n  \"{}\": [", text.empty() ? "" : ",", name(kind));
      const char* between = "\n    ";
      for (const SelectorRow& row : list) {
        Json entry = Json::object();
        if (row.up_to_bytes != INT64_MAX) entry.set("up_to_bytes", row.up_to_bytes);
        entry.set("algorithm", name(row.choice.algorithm));
        if (row.choice.algorithm != Algorithm::automatic) entry.set("blocks", row.choice.blocks);
        text += between + entry.dump();
        between = ",\n    ";
      }
      text += "]";
    }
    return text + "\n}";
  };
  std::string text = fmt::format("{{\"device\": {}, \"ranks\": {}, \"tables\": {{{}",
                                 Json(device_).dump(), ranks_, text_of(false));
  const std::string registered = text_of(true);
  if (registered != "\n}") text += ", \"registered\": {" + registered;
  return text + "}\n";
}

}  // namespace gantry
