// Values of options: durations and signals.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

/// Parses "300ms", "15s", "2m", "1h" or plain seconds; `what` names it in the error.
/// Throws: InvalidArgument.
[[nodiscard]] std::chrono::milliseconds parse_duration(std::string_view text,
                                                       std::string_view what);

/// Parses a list such as "USR1,SIGUSR2,10". Throws: InvalidArgument.
[[nodiscard]] std::vector<int> parse_signals(std::string_view text);

/// "SIGTERM" for 15; "signal 99" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

}  // namespace gantry::launcher
