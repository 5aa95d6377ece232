// Calls that block the host. The name is easy to guess; the header is
// <gantry/streams/sync_debug.hpp>.
#pragma once

#include <gantry/streams/sync_debug.hpp>
