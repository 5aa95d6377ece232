// Races between streams. The name is easy to guess; the header is
// <gantry/streams/sanitizer.hpp>.
#pragma once

#include <gantry/streams/sanitizer.hpp>
