// For collectives, which include this path: kernels run in streams.
#pragma once

#include "device/sim/streams/sim_launch.hpp"
