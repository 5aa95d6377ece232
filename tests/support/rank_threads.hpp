// Runs one function on one thread per rank.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace gantry::testing {

/// Calls `fn(rank)` on `count` threads at once and returns when all have ended.
///
/// Throws: std::runtime_error "rank <r>: <text>" for the first exception that any rank threw (first
/// in time). A rank that throws usually leaves the others waiting for it, so `on_failure`, if
/// given, is called once right then, to wake them (an abort). When a rank is still running after
/// `timeout`, the process is ended with a message that names the ranks: a thread that hangs cannot
/// be stopped in any other way.
void rank_threads(int count, const std::function<void(int rank)>& fn,
                  std::chrono::seconds timeout = std::chrono::seconds(100),
                  const std::function<void()>& on_failure = {});

}  // namespace gantry::testing
