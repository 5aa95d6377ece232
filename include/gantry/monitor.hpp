// Utilization and health of GPUs. The name is easy to guess; the header is
// <gantry/device/monitor.hpp>.
#pragma once

#include <gantry/device/monitor.hpp>
