#include "tools/top/sample_json.hpp"

namespace gantry::top {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

Json device_json(const DeviceState& device) {
  Json processes;
  if (device.processes) {
    processes = Json::array();
    for (const DeviceProcess& process : *device.processes) {
      processes.push_back(Json::object({{"pid", process.pid},
                                        {"name", text_or_null(process.name)},
                                        {"used_bytes", process.used_bytes}}));
    }
  }
  return Json::object({{"index", text_or_null(device.index)},
                       {"name", text_or_null(device.name)},
                       {"uuid", text_or_null(device.uuid)},
                       {"is_simulated", device.is_simulated},
                       {"utilization_percent", device.utilization},
                       {"memory_usage_percent", device.memory_usage},
                       {"memory_used_bytes", device.used_bytes},
                       {"memory_total_bytes", device.total_bytes},
                       {"temperature_celsius", device.temperature},
                       {"power_milliwatts", device.power},
                       {"clock_mhz", device.clock},
                       {"processes", std::move(processes)}});
}

Json call_json(const CallState& call) {
  return Json::object({{"group", call.group},
                       {"number", call.number},
                       {"call", call.text},
                       {"algorithm", call.algorithm},
                       {"bytes", call.bytes},
                       {"is_under_way", call.is_under_way},
                       {"age_s", seconds(call.age_ns)}});
}

Json rank_json(const RankState& rank) {
  return Json::object({{"rank", rank.rank},
                       {"pid", rank.pid},
                       {"host", text_or_null(rank.host)},
                       {"state", rank.state},
                       {"device_uuid", text_or_null(rank.uuid)},
                       {"device_index", rank.device_index},
                       {"allocated_bytes", rank.allocated_bytes},
                       {"reserved_bytes", rank.reserved_bytes},
                       {"call", rank.call ? call_json(*rank.call) : Json()}});
}

}  // namespace

Json sample_json(const Sample& sample) {
  Json devices = Json::array();
  for (const DeviceState& device : sample.devices) devices.push_back(device_json(device));
  Json jobs = Json::array();
  for (const JobState& job : sample.jobs) {
    Json ranks = Json::array();
    for (const RankState& rank : job.ranks) ranks.push_back(rank_json(rank));
    jobs.push_back(Json::object({{"job", text_or_null(job.job)},
                                 {"created_s", seconds(job.created_ns)},
                                 {"ranks", std::move(ranks)}}));
  }
  return Json::object({{"schema", kSchema},
                       {"time_s", seconds(sample.time_ns)},
                       {"host", sample.host},
                       {"devices", std::move(devices)},
                       {"jobs", std::move(jobs)},
                       {"notes", sample.notes}});
}

}  // namespace gantry::top
