#include "compat/nccl/tally.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <gantry/core/env.hpp>
#include <gantry/core/log.hpp>

#include "compat/nccl/fallback.hpp"

namespace gantry::nccl_api {

namespace {

std::atomic<Tally*> newest{nullptr};

void print_report() {
  std::fprintf(stderr, "gantry: calls of NCCL's interface in process %d\n",
               static_cast<int>(getpid()));
  for (const Tally* tally = newest.load(); tally != nullptr; tally = tally->next()) {
    if (tally->calls() == 0) continue;
    std::fprintf(stderr, "  %-28s %12" PRIu64 " calls %16" PRIu64 " bytes", tally->name(),
                 tally->calls(), tally->bytes());
    if (tally->theirs() > 0) std::fprintf(stderr, ", %" PRIu64 " by NCCL", tally->theirs());
    std::fprintf(stderr, "\n");
  }
  print_fallback_report();
}

}  // namespace

Tally::Tally(const char* function) noexcept : function_(function), next_(newest.load()) {
  while (!newest.compare_exchange_weak(next_, this)) {
  }
}

void report_at_exit() {
  static const bool is_wanted = [] {
    try {
      return env::get_bool("GANTRY_NCCL_REPORT", false) && std::atexit(print_report) == 0;
    } catch (const std::exception& error) {
      logging::warn(error.what());
      return false;
    }
  }();
  (void)is_wanted;
}

}  // namespace gantry::nccl_api
