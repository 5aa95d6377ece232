#include "machine/nvml/loaded_nvml.hpp"

#include <gantry/core/env.hpp>

namespace gantry::machine {

const Nvml& loaded_nvml() {
  static const Nvml& loaded = *new Nvml(env::get("GANTRY_NVML_PATH").value_or(Nvml::kDefaultPath));
  return loaded;
}

}  // namespace gantry::machine
