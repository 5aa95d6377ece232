#pragma once

#include "launcher/command/command.hpp"

namespace gantry::launcher {

/// `glaunch env`: prints the variables of ranks and of gantry.
extern const Command kEnvCommand;

}  // namespace gantry::launcher
