// For collectives, which include this path: the driver stands in front of the platform's.
#pragma once

#include "device/platform/sync_debug_driver.hpp"
