// The GPU architectures that CMake compiled the kernels for.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include <gantry/device/properties.hpp>

namespace gantry {

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

}  // namespace gantry
