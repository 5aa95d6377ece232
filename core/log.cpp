#include <gantry/core/log.hpp>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::logging {

namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace:
      return spdlog::level::trace;
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  __builtin_unreachable();
}

// The level that GANTRY_LOG names, and the complaint about its value; empty for a valid value.
struct Setting {
  Level level = Level::warn;
  std::string complaint;
};

Setting read_setting() {
  constexpr std::pair<std::string_view, Level> kLevels[] = {
      {"trace", Level::trace}, {"debug", Level::debug}, {"info", Level::info},
      {"warn", Level::warn},   {"error", Level::error}, {"off", Level::off}};
  try {
    const std::string wanted = env::kLog.get();
    for (const auto& [name, value] : kLevels) {
      if (wanted == name) return {.level = value, .complaint = {}};
    }
    return {};
  } catch (const InvalidArgument& error) {
    return {.level = Level::warn, .complaint = error.what()};
  }
}

// Never destroyed: static destructors of other libraries may still want to log.
const Setting& setting() {
  static const Setting& instance = *new Setting(read_setting());
  return instance;
}

// Never destroyed, either. An invalid GANTRY_LOG is reported here, once: a call that only writes a
// line must not throw, and the error must not be lost.
spdlog::logger& logger() {
  static spdlog::logger& instance = []() -> spdlog::logger& {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto made = std::make_unique<spdlog::logger>("gantry", std::move(sink));
    made->set_pattern("[gantry %H:%M:%S.%e %P %l] %v");
    made->set_level(to_spdlog(setting().level));
    if (const std::string& complaint = setting().complaint; !complaint.empty()) {
      made->error(complaint);
    }
    return *made.release();
  }();
  return instance;
}

spdlog::logger& checked_logger() {
  if (const std::string& complaint = setting().complaint; !complaint.empty()) {
    throw InvalidArgument(complaint);
  }
  return logger();
}

}  // namespace

Level level() {
  for (const Level candidate :
       {Level::trace, Level::debug, Level::info, Level::warn, Level::error}) {
    if (checked_logger().should_log(to_spdlog(candidate))) return candidate;
  }
  return Level::off;
}

void set_level(Level level) { checked_logger().set_level(to_spdlog(level)); }

bool enabled(Level level) { return checked_logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view message) noexcept {
  try {
    // Messages name files, hosts and jobs, which anybody may have named.
    const std::string text = escape_control_characters(message, LineEnds::keep);
    logger().log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {  // A message that cannot be written is lost; a destructor must not throw for it.
  }
}

}  // namespace gantry::logging
