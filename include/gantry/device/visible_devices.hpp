// Moved to <gantry/machine/visible_devices.hpp>. This header goes with the next release.
#pragma once

#include <gantry/machine/visible_devices.hpp>
