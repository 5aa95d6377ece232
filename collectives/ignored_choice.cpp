#include "collectives/ignored_choice.hpp"

#include <fmt/format.h>

#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>

#include "collectives/selector.hpp"

namespace gantry {

namespace {

// True at the first call with `key`.
bool is_first(std::string key) {
  // Never destroyed: groups may outlive static objects.
  static auto& mutex = *new std::mutex;
  static auto& warned = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return warned.insert(std::move(key)).second;
}

constexpr const char* kVariable = "GANTRY_COLL_ALGO";

}  // namespace

void warn_ignored_choice(std::string_view source, std::string_view value,
                         std::string_view operation, std::string_view instead,
                         std::string_view why) noexcept {
  try {
    if (!is_first(fmt::format("{}={} {}", source, value, operation))) return;
    logging::warn(fmt::format("{}={}: {} goes by {}: {}", source, value, operation, instead, why));
  } catch (const std::bad_alloc&) {  // the next call warns
  }
}

CommChoice comm_choice(std::string_view operation) {
  const std::string wanted = env::get(kVariable).value_or("auto");
  if (wanted == "auto" || wanted.empty()) return CommChoice::automatic;
  if (wanted == "p2p") return CommChoice::p2p;
  if (wanted == "nccl") return CommChoice::nccl;
  Selector().rule(wanted);  // throws for an unknown value
  warn_ignored_choice(kVariable, wanted, operation, "p2p",
                      "operations inside one process have auto, p2p and nccl");
  return CommChoice::p2p;
}

void warn_without_nccl(std::string_view operation, std::string_view why) {
  if (comm_choice(operation) != CommChoice::nccl) return;
  warn_ignored_choice(kVariable, "nccl", operation, "p2p", why);
}

}  // namespace gantry
