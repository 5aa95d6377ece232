// A sample for scripts.
#pragma once

#include "core/text/json.hpp"
#include "tools/top/sample.hpp"

namespace gantry::top {

/// Version of the document that sample_json() makes: a change that breaks scripts raises it.
inline constexpr int kSchema = 1;

/// The document of docs/reference/gantry-top.md. What is unknown is null.
[[nodiscard]] Json sample_json(const Sample& sample);

}  // namespace gantry::top
