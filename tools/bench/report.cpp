#include "tools/bench/report.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include <gantry/core/error.hpp>

namespace gantry::bench {

namespace {

using Json = nlohmann::ordered_json;

Json row_json(const Row& row) {
  return {{"operation", row.operation},
          {"dtype", row.dtype},
          {"redop", row.redop},
          {"root", row.root},
          {"bytes", row.bytes},
          {"count", row.count},
          {"variant", row.variant},
          {"algorithm", row.algorithm},
          {"mode", row.mode},
          {"in_place", row.in_place},
          {"calls", row.calls},
          {"batches", row.batches},
          {"time_us", row.time_us},
          {"min_us", row.min_us},
          {"p50_us", row.p50_us},
          {"p99_us", row.p99_us},
          {"algbw_gbs", row.algbw_gbs},
          {"busbw_gbs", row.busbw_gbs},
          {"wrong", row.wrong ? Json(*row.wrong) : Json(nullptr)},
          {"note", row.note}};
}

Row read_row(const Json& json) {
  Row row;
  json.at("operation").get_to(row.operation);
  json.at("dtype").get_to(row.dtype);
  json.at("redop").get_to(row.redop);
  json.at("root").get_to(row.root);
  json.at("bytes").get_to(row.bytes);
  json.at("count").get_to(row.count);
  json.at("variant").get_to(row.variant);
  json.at("algorithm").get_to(row.algorithm);
  json.at("mode").get_to(row.mode);
  json.at("in_place").get_to(row.in_place);
  json.at("calls").get_to(row.calls);
  json.at("batches").get_to(row.batches);
  json.at("time_us").get_to(row.time_us);
  json.at("min_us").get_to(row.min_us);
  json.at("p50_us").get_to(row.p50_us);
  json.at("p99_us").get_to(row.p99_us);
  json.at("algbw_gbs").get_to(row.algbw_gbs);
  json.at("busbw_gbs").get_to(row.busbw_gbs);
  if (!json.at("wrong").is_null()) row.wrong = json.at("wrong").get<std::int64_t>();
  json.at("note").get_to(row.note);
  return row;
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
      "#{:>12} {:>12} {:>5} {:>5} {:>4}  {:<20} {:<7} {:<5} {:<3} {:>9} {:>9} {:>9} {:>8} {:>8} "
      "{:>6}\n",
      report.library, report.ranks, report.device, report.launched_by, "size", "count", "type",
      "redop", "root", "operation", "algo", "mode", "in", "time/us", "p50/us", "p99/us", "algbw",
      "busbw", "#wrong");
}

std::string row_text(const Row& row) {
  std::string line =
      fmt::format(" {:>12} {:>12} {:>5} {:>5} {:>4}  {:<20} {:<7} {:<5} {:<3} ", row.bytes,
                  row.count, row.dtype, row.redop, row.root, short_name(row), row.algorithm,
                  row.mode, row.in_place ? "in" : "out");
  if (row.batches == 0 && !row.note.empty()) return line + " " + row.note + "\n";
  return line + fmt::format("{:>9} {:>9} {:>9} {:>8.2f} {:>8.2f} {:>6}\n", time_text(row.time_us),
                            time_text(row.p50_us), time_text(row.p99_us), row.algbw_gbs,
                            row.busbw_gbs, row.wrong ? fmt::to_string(*row.wrong) : "N/A");
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
  return fmt::format("# wrong elements: {}; mean bus bandwidth {:.2f} GB/s\n",
                     checked == 0 ? "not checked" : fmt::to_string(wrong_elements(report)),
                     measured == 0 ? 0 : sum / measured);
}

std::string report_json(const Report& report) {
  Json rows = Json::array();
  for (const Row& row : report.rows) rows.push_back(row_json(row));
  const Json json{{"schema", "gantry-collectives-1"},  {"library", report.library},
                  {"device", report.device},           {"ranks", report.ranks},
                  {"launched_by", report.launched_by}, {"rows", std::move(rows)}};
  return json.dump(1) + "\n";
}

Report read_report(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InvalidArgument(fmt::format("cannot read '{}'", path));
  try {
    const Json json = Json::parse(file);
    Report report;
    if (json.at("schema") != "gantry-collectives-1") {
      throw InvalidArgument(fmt::format("{}: expected the schema gantry-collectives-1, but got {}",
                                        path, json.at("schema").dump()));
    }
    json.at("library").get_to(report.library);
    json.at("device").get_to(report.device);
    json.at("ranks").get_to(report.ranks);
    json.at("launched_by").get_to(report.launched_by);
    for (const Json& row : json.at("rows")) report.rows.push_back(read_row(row));
    return report;
  } catch (const Json::exception& error) {
    throw InvalidArgument(
        fmt::format("{}: expected results of gantry-bench, but got: {}", path, error.what()));
  }
}

}  // namespace gantry::bench
