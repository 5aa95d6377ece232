// Traces of a program. The name is easy to guess; the header is
// <gantry/kernels/trace.hpp>.
#pragma once

#include <gantry/kernels/trace.hpp>
