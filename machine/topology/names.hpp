// Texts of the enumerations of a Topology.
#pragma once

#include <optional>
#include <string_view>

#include <gantry/machine/topology.hpp>

namespace gantry::machine {

/// The value with this name; none if there is none.
[[nodiscard]] std::optional<FactSource> source_named(std::string_view text);
[[nodiscard]] std::optional<PciPath> path_named(std::string_view text);
/// "gpu", "switch", "processor", "?".
[[nodiscard]] std::string_view name(Topology::LinkEnd end);
[[nodiscard]] std::optional<Topology::LinkEnd> link_end_named(std::string_view text);

}  // namespace gantry::machine
