#include "tools/top/sample.hpp"

#include <unistd.h>

#include <array>
#include <chrono>

#include "core/text/escaped_text.hpp"
#include "machine/process_ids.hpp"

namespace gantry::top {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return escape_control_characters(name.data());
}

}  // namespace

Sample take_sample(const machine::Nvml& nvml) {
  Sample sample;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  sample.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  sample.host = host_name();
  sample.devices = read_devices(nvml, machine::has_host_process_ids(), sample.notes);
  sample.jobs = read_jobs(sample.notes);
  join_ranks_to_devices(sample);
  return sample;
}

}  // namespace gantry::top
