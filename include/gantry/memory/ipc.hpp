// Moved to <gantry/ipc/ipc.hpp>. This header goes with the next release.
#pragma once

#include <gantry/ipc/ipc.hpp>
