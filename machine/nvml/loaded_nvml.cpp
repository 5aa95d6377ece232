#include "machine/nvml/loaded_nvml.hpp"

#include <string>

#include "core/env/settings.hpp"

namespace gantry::machine {

const Nvml& loaded_nvml() {
  static const Nvml& loaded = *[] {
    const std::string named = env::kNvmlPath.text();
    return new Nvml(named.empty() ? Nvml::kDefaultPath : named);
  }();
  return loaded;
}

}  // namespace gantry::machine
