#include "collectives/communicator/rank_devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"
#include "device/own_placement.hpp"

namespace gantry {

Device choose_device(const ProcessIdentity& identity, std::string_view maker) {
  init();
  const int count = device_count();
  if (count == 1) return Device::cuda(0);
  if (const auto named = env::kDevice.get()) {
    if (*named >= count) {
      throw InvalidArgument(fmt::format("{}: GANTRY_DEVICE is {}, but rank {} sees only {} devices",
                                        maker, *named, identity.rank, count));
    }
    return Device::cuda(static_cast<int>(*named));
  }
  if (identity.local_rank >= count) {
    std::string remedy = fmt::format("start at most {} ranks per node", count);
    const int wanted = std::max(identity.local_size, identity.local_rank + 1);
    if (platform() == Platform::simulated && wanted <= env::kSimDevices.most()) {
      remedy += fmt::format(", or set GANTRY_SIM_DEVICES={}", wanted);
    }
    throw InvalidArgument(fmt::format(
        "{}: local rank {} needs a device of its own, but this node shows only {} device(s); {}",
        maker, identity.local_rank, count, remedy));
  }
  return Device::cuda(identity.local_rank);
}

void settle_process(const ProcessIdentity& identity, Device device) {
  set_device(device);
  place_process({.rank = identity.rank,
                 .local_rank = identity.local_rank,
                 .local_size = identity.local_size,
                 .is_placed = identity.source == "glaunch"},
                device);
  report_uncaught_errors_on(device.str());
}

namespace {

// Devices that one line names.
constexpr std::size_t kMostNamed = 4;

// True if a server of MPS, which divides a GPU between processes, is set up.
bool has_mps() {
  const std::string pipes = env::get("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
  std::error_code failure;
  return std::filesystem::exists(pipes + "/control", failure);
}

bool is_asked_for(const ProcessIdentity& identity) {
  if (identity.source == "glaunch") return true;  // it has its own check
  if (platform() == Platform::simulated) {
    return env::kSimDevices.get().value_or(1) <= device_count();
  }
  return has_mps();
}

// The variable that the launcher or the user has set, and the remedy.
std::string cause() {
  const std::string device = env::kDevice.text();
  const std::optional<std::string> visible = env::get("CUDA_VISIBLE_DEVICES");
  if (visible) {
    return fmt::format(
        "CUDA_VISIBLE_DEVICES={} is set for rank 0; unset it, so that each rank "
        "takes a GPU of its own, or set another one for each rank",
        escape_control_characters(*visible));
  }
  if (!device.empty() && device_count() > 1) {
    return fmt::format(
        "GANTRY_DEVICE={} is set for rank 0; unset it, or set another one for each "
        "rank",
        escape_control_characters(device));
  }
  return "rank 0 sees no other GPU; start fewer ranks on its machine";
}

// The devices that several ranks of a machine use, with these ranks: "ranks 0, 1 use GPU-…; …".
// Empty if every rank has a device of its own.
std::string shared_devices_text(const RankTable& ranks) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<int>> by_device;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts facts = ranks.facts(rank);
    by_device[{facts.boot, facts.uuid}].push_back(rank);
  }
  std::vector<std::pair<std::vector<int>, std::string_view>> shared;
  for (auto& [device, users] : by_device) {
    if (users.size() > 1) shared.emplace_back(std::move(users), device.second);
  }
  std::ranges::sort(shared);
  std::vector<std::string> texts;
  for (const auto& [users, uuid] : shared) {
    if (texts.size() == kMostNamed) {
      texts.push_back(fmt::format("and {} more", shared.size() - kMostNamed));
      break;
    }
    texts.push_back(
        fmt::format("ranks {} use {}", fmt::join(users, ", "), escape_control_characters(uuid)));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

void warn_shared_devices(const RankTable& ranks, const ProcessIdentity& identity,
                         std::string_view maker) {
  if (identity.rank != 0 || is_asked_for(identity)) return;
  const std::string shared = shared_devices_text(ranks);
  if (shared.empty()) return;
  logging::warn(fmt::format("{}: expected a GPU of its own for every rank, but {}: {}", maker,
                            shared, cause()));
}

}  // namespace gantry
