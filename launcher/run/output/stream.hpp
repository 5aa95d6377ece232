#pragma once

namespace gantry::launcher {

/// Which of a rank's two outputs.
enum class Stream { out, err };

}  // namespace gantry::launcher
