// For collectives/communicator, which includes this path: the description of a call.
#pragma once

#include "collectives/selection/descriptor.hpp"
