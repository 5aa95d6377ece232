#pragma once

namespace gantry::machine {

/// Whether process ids of the host name the same processes here: false in a container.
[[nodiscard]] bool has_host_process_ids();

}  // namespace gantry::machine
