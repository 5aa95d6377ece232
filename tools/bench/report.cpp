#include "tools/bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include <gantry/core/error.hpp>

#include "core/files/regular_file.hpp"
#include "core/text/json.hpp"

namespace gantry::bench {

namespace {

constexpr std::string_view kSchema = "gantry-collectives-1";
constexpr std::size_t kAlgorithmWidth = std::string_view("ll128_two_shot").size();

Json to_json(const PredictedCounts& counts) {
  Json links = Json::object();
  for (const PredictedCounts::Links& kind : counts.links) {
    links.append(kind.kind,
                 Json::object({{"busiest_bytes", kind.busiest_bytes}, {"bytes", kind.bytes}}));
  }
  return Json::object({{"ranks", counts.ranks},
                       {"steps", counts.steps},
                       {"messages", counts.messages},
                       {"links", std::move(links)}});
}

Json to_json(const Row& row) {
  Json json = Json::object({{"operation", row.operation}, {"dtype", row.dtype},
                            {"redop", row.redop},         {"root", row.root},
                            {"bytes", row.bytes},         {"count", row.count},
                            {"variant", row.variant},     {"algorithm", row.algorithm},
                            {"mode", row.mode},           {"in_place", row.in_place},
                            {"calls", row.calls},         {"batches", row.batches},
                            {"time_us", row.time_us},     {"min_us", row.min_us},
                            {"p50_us", row.p50_us},       {"p99_us", row.p99_us},
                            {"algbw_gbs", row.algbw_gbs}, {"busbw_gbs", row.busbw_gbs},
                            {"wrong", row.wrong},         {"note", row.note}});
  if (row.predicted) json.append("predicted", to_json(*row.predicted));
  return json;
}

// Sets `value` to the member.
template <class T>
void read(const Json& json, std::string_view key, T& value) {
  value = json.at(key).as<T>();
}

Row read_row(const Json& json) {
  Row row;
  read(json, "operation", row.operation);
  read(json, "dtype", row.dtype);
  read(json, "redop", row.redop);
  read(json, "root", row.root);
  read(json, "bytes", row.bytes);
  read(json, "count", row.count);
  read(json, "variant", row.variant);
  read(json, "algorithm", row.algorithm);
  read(json, "mode", row.mode);
  read(json, "in_place", row.in_place);
  read(json, "calls", row.calls);
  read(json, "batches", row.batches);
  read(json, "time_us", row.time_us);
  read(json, "min_us", row.min_us);
  read(json, "p50_us", row.p50_us);
  read(json, "p99_us", row.p99_us);
  read(json, "algbw_gbs", row.algbw_gbs);
  read(json, "busbw_gbs", row.busbw_gbs);
  if (!json.at("wrong").is_null()) row.wrong = json.at("wrong").as<std::int64_t>();
  read(json, "note", row.note);
  return row;
}

Report report_in(const Json& json) {
  Report report;
  read(json, "library", report.library);
  read(json, "device", report.device);
  read(json, "ranks", report.ranks);
  read(json, "launched_by", report.launched_by);
  for (const Json& row : json.at("rows").elements()) report.rows.push_back(read_row(row));
  return report;
}

// Three digits that say something, as nccl-tests prints times.
std::string time_text(double us) {
  if (us <= 0) return "-";
  return us < 100 ? fmt::format("{:.2f}", us)
                  : (us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us));
}

// The forms of comm are told by their algorithm.
std::string_view short_name(const Row& row) {
  std::string_view operation = row.operation;
  if (operation.starts_with("comm.")) operation.remove_prefix(5);
  return operation;
}

}  // namespace

void Row::set_timing(const Timing& timing, double bus_factor) {
  calls = timing.calls;
  batches = timing.batches;
  time_us = timing.mean_us;
  min_us = timing.min_us;
  p50_us = timing.p50_us;
  p99_us = timing.p99_us;
  algbw_gbs = time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
  busbw_gbs = algbw_gbs * bus_factor;
}

std::string head_text(const Report& report) {
  return fmt::format(
      "# {} on {} × {}, ranks started by {}\n"
      "# size: bytes as nccl-tests counts them; times of one call, the slowest rank's; bandwidths "
      "in GB/s\n"
      "#{:>12} {:>12} {:>5} {:>5} {:>4}  {:<20} {:<{}} {:<5} {:<3} {:>9} {:>9} {:>9} {:>8} {:>8} "
      "{:>6}\n",
      report.library, report.ranks, report.device, report.launched_by, "size", "count", "type",
      "redop", "root", "operation", "algo", kAlgorithmWidth, "mode", "in", "time/us", "p50/us",
      "p99/us", "algbw", "busbw", "#wrong");
}

std::string row_text(const Row& row) {
  std::string line =
      fmt::format(" {:>12} {:>12} {:>5} {:>5} {:>4}  {:<20} {:<{}} {:<5} {:<3} ", row.bytes,
                  row.count, row.dtype, row.redop, row.root, short_name(row), row.algorithm,
                  kAlgorithmWidth, row.mode, row.in_place ? "in" : "out");
  if (row.batches == 0 && !row.note.empty()) return line + " " + row.note + "\n";
  return line + fmt::format("{:>9} {:>9} {:>9} {:>8.2f} {:>8.2f} {:>6}\n", time_text(row.time_us),
                            time_text(row.p50_us), time_text(row.p99_us), row.algbw_gbs,
                            row.busbw_gbs, row.wrong ? fmt::to_string(*row.wrong) : "N/A");
}

std::string unserved_text(CollectiveKind kind, std::string_view algorithm, std::size_t unserved,
                          std::size_t cases) {
  return fmt::format("# {}: {} does not serve {}\n", name(kind), algorithm,
                     unserved == cases ? "it" : fmt::format("{} of {} sizes", unserved, cases));
}

bool has_measurements(const Report& report) {
  return std::any_of(report.rows.begin(), report.rows.end(),
                     [](const Row& row) { return row.batches > 0 || row.wrong.has_value(); });
}

std::int64_t wrong_elements(const Report& report) {
  std::int64_t wrong = 0;
  for (const Row& row : report.rows) wrong += row.wrong.value_or(0);
  return wrong;
}

std::string tail_text(const Report& report) {
  double sum = 0;
  int measured = 0;
  int checked = 0;
  for (const Row& row : report.rows) {
    checked += row.wrong ? 1 : 0;
    if (row.batches == 0) continue;
    sum += row.busbw_gbs;
    ++measured;
  }
  if (!has_measurements(report)) return "# nothing was measured\n";
  return fmt::format("# wrong elements: {}; mean bus bandwidth {:.2f} GB/s\n",
                     checked == 0 ? "not checked" : fmt::to_string(wrong_elements(report)),
                     measured == 0 ? 0 : sum / measured);
}

std::string report_json(const Report& report) {
  Json rows = Json::array();
  for (const Row& row : report.rows) rows.push_back(to_json(row));
  const Json json = Json::object({{"schema", kSchema},
                                  {"library", report.library},
                                  {"device", report.device},
                                  {"ranks", report.ranks},
                                  {"launched_by", report.launched_by},
                                  {"rows", std::move(rows)}});
  return json.dump(1) + "\n";
}

Report read_report(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  const FileContent file = read_regular_file(path, kMostBytes);
  if (!file.ok()) throw InvalidArgument(fmt::format("cannot read '{}': {}", path, file.problem));
  std::string problem;
  try {
    const Json json = Json::parse(file.text);
    const Json& schema = json.at("schema");
    if (schema == kSchema) return read_json(json, report_in);
    problem = fmt::format("expected the schema {}, but got {}", kSchema, schema.dump());
  } catch (const InvalidArgument& error) {
    problem = fmt::format("expected results of gantry-bench, but got: {}", error.what());
  }
  throw InvalidArgument(fmt::format("{}: {}", path, problem));
}

}  // namespace gantry::bench
