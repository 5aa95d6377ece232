// Options of other launchers that glaunch does not have.
#pragma once

namespace gantry {
class CommandLine;
}  // namespace gantry

namespace gantry::launcher {

/// Lets the errors about options of torchrun, mpirun, srun and DeepSpeed name glaunch's own way.
void add_foreign_options(CommandLine& line);

}  // namespace gantry::launcher
