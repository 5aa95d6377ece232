#include "tools/replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "tools/replay/format.hpp"

namespace gantry::replay {
namespace {

using Cells = std::vector<std::string>;

// Characters on the screen: continuation bytes of UTF-8 take no place.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string table(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    if (row.size() < 3) continue;  // a name and a remark, which may be long
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  for (const Cells& row : rows) widths[0] = std::max(widths[0], width(row[0]));
  std::string text;
  for (const Cells& row : rows) {
    text += "  " + row[0] + std::string(widths[0] - width(row[0]), ' ');
    if (row.size() == 2) {
      text += "   " + row[1];
    } else {
      for (std::size_t i = 1; i < row.size(); ++i) {
        text += "   " + std::string(widths[i] - width(row[i]), ' ') + row[i];
      }
    }
    text += '\n';
  }
  return text;
}

double speed_of(const ReplayResult& result) {
  return result.warm_ns > 0 ? result.warm_ns : result.first_ns;
}

Cells row_of(const ReplayResult& result) {
  if (!result.error.empty()) return {result.backend, result.error};
  return {result.backend,
          result.warm_ns > 0 ? time_text(result.warm_ns) : "–",
          time_text(result.first_ns),
          bytes_text(result.peak_reserved),
          percent_text(result.waste()),
          count_text(result.driver_calls_first),
          count_text(result.driver_calls_warm),
          count_text(result.ooms),
          result.leaked_bytes == 0 ? "none" : bytes_text(result.leaked_bytes)};
}

std::string outcome_of(const ReplayResult& result, const Report& report) {
  if (!result.error.empty()) return fmt::format("{} could not be measured", result.backend);
  if (result.ooms == 0 && !result.completed()) {
    return fmt::format("{} is too slow: {} of {} operations were done in time", result.backend,
                       count_text(result.done), count_text(report.operations));
  }
  if (!result.completed()) {
    return fmt::format("{} runs out of memory at operation {} of {}", result.backend,
                       count_text(result.first_oom_op.value_or(0) + 1),
                       count_text(report.operations));
  }
  return fmt::format("{} completes: {} per operation, {} waste", result.backend,
                     time_text(speed_of(result)), percent_text(result.waste()));
}

// "vmm, native and async".
std::string enumerate(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

std::string ratio_text(double ratio) {
  return ratio >= 9.95 ? fmt::format("{:.0f}×", ratio) : fmt::format("{:.1f}×", ratio);
}

std::string head(const Report& report) {
  std::string text = fmt::format(
      "{}\n  {} on {}{}, {}, {} to {}, peak live {}\n", escape_control_characters(report.sequence),
      plural(report.operations, "operation", "operations"),
      plural(report.streams, "stream", "streams"),
      report.threads > 1 ? fmt::format(" and {} threads", report.threads) : "",
      plural(report.facts.allocations, "allocation", "allocations"),
      bytes_text(report.facts.smallest_bytes), bytes_text(report.facts.largest_bytes),
      bytes_text(report.facts.peak_live_bytes));
  if (report.facts.live_blocks_at_end > 0) {
    text +=
        fmt::format("  {} at the end; the replay frees them\n",
                    plural(report.facts.live_blocks_at_end, "block is live", "blocks are live"));
  }
  if (report.unmatched_frees > 0) {
    text += fmt::format("  {} of memory allocated before the log began: left out\n",
                        plural(report.unmatched_frees, "free", "frees"));
  }
  if (report.incomplete_lines > 0) {
    text += fmt::format("  {} at the end of the log is incomplete: left out\n",
                        plural(report.incomplete_lines, "line", "lines"));
  }
  text += fmt::format("  {}", report.device);
  if (report.limit_bytes) {
    text += fmt::format(
        ", limit {} ({:.2f} × peak live)", bytes_text(*report.limit_bytes),
        static_cast<double>(*report.limit_bytes) /
            static_cast<double>(std::max<std::uint64_t>(1, report.facts.peak_live_bytes)));
  }
  return text + fmt::format("; one first pass, then {}\n\n",
                            plural(static_cast<std::uint64_t>(report.repeat), "pass", "passes"));
}

Json to_json(const ReplayResult& result) {
  Json samples = Json::array();
  for (const MemorySample& sample : result.samples) {
    samples.push_back(Json::array({sample.op, sample.live_bytes, sample.reserved_bytes}));
  }
  return Json::object({{"backend", result.backend},
                       {"error", result.error},
                       {"completed", result.completed()},
                       {"operations", result.operations},
                       {"done", result.done},
                       {"first_ns", result.first_ns},
                       {"warm_ns", result.warm_ns},
                       {"peak_live", result.peak_live},
                       {"peak_reserved", result.peak_reserved},
                       {"waste", result.waste()},
                       {"driver_calls_first", result.driver_calls_first},
                       {"driver_calls_warm", result.driver_calls_warm},
                       {"ooms", result.ooms},
                       {"first_oom_op", result.first_oom_op},
                       {"leaked_bytes", result.leaked_bytes},
                       {"held_after_empty", result.held_after_empty},
                       {"samples", std::move(samples)}});
}

// Sets `value` to the member.
template <class T>
void read(const Json& json, std::string_view key, T& value) {
  value = json.at(key).as<T>();
}

ReplayResult result_in(const Json& json) {
  ReplayResult result;
  read(json, "backend", result.backend);
  read(json, "error", result.error);
  read(json, "first_ns", result.first_ns);
  read(json, "warm_ns", result.warm_ns);
  read(json, "operations", result.operations);
  read(json, "done", result.done);
  read(json, "peak_live", result.peak_live);
  read(json, "peak_reserved", result.peak_reserved);
  read(json, "driver_calls_first", result.driver_calls_first);
  read(json, "driver_calls_warm", result.driver_calls_warm);
  read(json, "ooms", result.ooms);
  if (!json.at("first_oom_op").is_null()) {
    result.first_oom_op = json.at("first_oom_op").as<decltype(result.first_oom_op)::value_type>();
  }
  read(json, "leaked_bytes", result.leaked_bytes);
  read(json, "held_after_empty", result.held_after_empty);
  for (const Json& values : json.at("samples").elements()) {
    MemorySample& sample = result.samples.emplace_back();
    sample.op = values.at(0).as<decltype(sample.op)>();
    sample.live_bytes = values.at(1).as<decltype(sample.live_bytes)>();
    sample.reserved_bytes = values.at(2).as<decltype(sample.reserved_bytes)>();
  }
  return result;
}

}  // namespace

std::string summary(const Report& report) {
  if (report.results.size() == 1) return outcome_of(report.results.front(), report) + ".";
  std::vector<const ReplayResult*> done;
  std::vector<std::string> short_of_memory;
  std::vector<std::string> late;
  for (const ReplayResult& result : report.results) {
    if (result.backend == "bump" || !result.error.empty()) continue;
    if (result.completed()) {
      done.push_back(&result);
    } else {
      (result.ooms > 0 ? short_of_memory : late).push_back(result.backend);
    }
  }
  std::string text;
  if (done.size() == 1) {
    text = outcome_of(*done.front(), report);
  } else if (!done.empty()) {
    std::sort(done.begin(), done.end(),
              [](auto* a, auto* b) { return speed_of(*a) < speed_of(*b); });
    const ReplayResult& fastest = *done[0];
    const ReplayResult& second = *done[1];
    // A backend that holds exactly the live bytes has no waste to speak of, and no cache either.
    const auto leanest = std::min_element(done.begin(), done.end(), [](auto* a, auto* b) {
      return std::pair(a->backend == "cuda", a->waste()) <
             std::pair(b->backend == "cuda", b->waste());
    });
    text = fmt::format("{} is fastest: {} per operation, {} faster than {}; ", fastest.backend,
                       time_text(speed_of(fastest)),
                       ratio_text(speed_of(second) / std::max(speed_of(fastest), 1e-3)),
                       second.backend);
    text += *leanest == &fastest
                ? fmt::format("it also wastes least: {}", percent_text(fastest.waste()))
                : fmt::format("{} wastes least: {}", (*leanest)->backend,
                              percent_text((*leanest)->waste()));
  }
  if (!short_of_memory.empty()) {
    if (!text.empty()) text += "; ";
    text += enumerate(short_of_memory) +
            (short_of_memory.size() == 1 ? " runs out of memory" : " run out of memory");
  }
  if (!late.empty()) {
    if (!text.empty()) text += "; ";
    text += enumerate(late) + (late.size() == 1 ? " is too slow" : " are too slow");
  }
  return text.empty() ? "Nothing could be measured." : text + ".";
}

std::string report_text(const Report& report) {
  std::vector<Cells> rows = {{"backend", "per op", "first pass", "peak reserved", "waste",
                              "driver calls", "then", "OOM", "leaks"}};
  for (const ReplayResult& result : report.results) rows.push_back(row_of(result));
  return head(report) + table(rows) + "\n→ " + summary(report) + "\n";
}

std::string report_json(const Report& report) {
  Json results = Json::array();
  for (const ReplayResult& result : report.results) results.push_back(to_json(result));
  const Json sequence = Json::object({{"name", report.sequence},
                                      {"operations", report.operations},
                                      {"allocations", report.facts.allocations},
                                      {"streams", report.streams},
                                      {"threads", report.threads},
                                      {"peak_live_bytes", report.facts.peak_live_bytes},
                                      {"live_blocks_at_end", report.facts.live_blocks_at_end},
                                      {"unmatched_frees", report.unmatched_frees},
                                      {"incomplete_lines", report.incomplete_lines}});
  const Json json = Json::object({{"sequence", sequence},
                                  {"device", report.device},
                                  {"limit_bytes", report.limit_bytes},
                                  {"repeat", report.repeat},
                                  {"summary", summary(report)},
                                  {"results", std::move(results)}});
  return json.dump(1) + "\n";
}

std::vector<ReplayResult> results_from_json(std::string_view text) {
  try {
    return read_json(Json::parse(text), [](const Json& json) {
      std::vector<ReplayResult> results;
      for (const Json& result : json.at("results").elements()) {
        results.push_back(result_in(result));
      }
      return results;
    });
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("replay results: {}", error.what()));
  }
}

}  // namespace gantry::replay
