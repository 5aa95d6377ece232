// The GPU architectures that CMake compiled the kernels for.
#include "device/architectures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/device/properties.hpp>

namespace gantry {

namespace {

// One name of arch_list().
struct Code {
  bool is_ptx = false;
  int major = 0;
  int minor = 0;
  char suffix = 0;  // 'a': this architecture only, 'f': its family
};

Code parse_code(std::string_view name) {
  const std::string_view number = name.substr(name.find('_') + 1);
  int value = 0;
  const char* const last = number.data() + number.size();
  const auto [end, status] = std::from_chars(number.data(), last, value);
  static_cast<void>(status);  // CMake lets numbers through only
  return {name.starts_with("compute_"), value / 10, value % 10, end == last ? char{0} : *end};
}

bool runs_on(const Code& code, int major, int minor) {
  if (code.suffix == 'a') return code.major == major && code.minor == minor;
  if (code.major == major) return code.minor <= minor;
  return code.is_ptx && code.suffix == 0 && code.major < major;
}

}  // namespace

std::vector<std::string> arch_list() {
  // CMake's spelling: "90" is machine code and PTX, "90-real" the first, "90-virtual" the second.
  std::vector<std::string> machine_code;
  std::vector<std::string> ptx;
  std::string_view rest = GANTRY_BUILD_ARCHITECTURES;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    const auto dash = item.find('-');
    const std::string number(item.substr(0, dash));
    const std::string_view kind = dash == std::string_view::npos ? "" : item.substr(dash + 1);
    if (kind != "virtual") machine_code.push_back("sm_" + number);
    if (kind != "real") ptx.push_back("compute_" + number);
  }
  machine_code.insert(machine_code.end(), ptx.begin(), ptx.end());
  return machine_code;
}

std::string gencode_flags() {
  std::string flags;
  for (const std::string& code : arch_list()) {
    const std::string number = code.substr(code.find('_') + 1);
    if (!flags.empty()) flags += ' ';
    flags += fmt::format("-gencode arch=compute_{},code={}", number, code);
  }
  return flags;
}

bool has_code_for(std::span<const std::string> built, int major, int minor) {
  return std::any_of(built.begin(), built.end(), [&](const std::string& name) {
    return runs_on(parse_code(name), major, minor);
  });
}

std::string missing_code_text(std::span<const std::string> built, int device, std::string_view name,
                              int major, int minor) {
  return fmt::format(
      "cuda:{} ({}) is sm_{}{}, but this build of gantry has kernels for {} only, so none of them "
      "runs there; configure with -DGANTRY_CUDA_ARCHITECTURES={}{} and build again",
      device, name, major, minor, fmt::join(built, ", "), major, minor);
}

}  // namespace gantry
