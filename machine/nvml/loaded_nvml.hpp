#pragma once

#include "machine/nvml/nvml.hpp"

namespace gantry::machine {

/// The process's session with NVML, loaded at the first call from GANTRY_NVML_PATH or the system.
/// It is never destroyed: static destructors of the program may still use it.
[[nodiscard]] const Nvml& loaded_nvml();

}  // namespace gantry::machine
