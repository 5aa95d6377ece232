// The record of the allocators' actions. The name is easy to guess; the header is
// <gantry/memory/history.hpp>.
#pragma once

#include <gantry/memory/history.hpp>
