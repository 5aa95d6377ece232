// For collectives/communicator, which includes this path: the choice of the algorithm.
#pragma once

#include "collectives/selection/selector.hpp"
