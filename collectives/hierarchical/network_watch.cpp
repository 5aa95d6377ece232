#include "collectives/hierarchical/network_watch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

namespace {

// The links know of a dead rank within four seconds.
constexpr auto kDiagnosisTimeout = std::chrono::seconds(5);
constexpr auto kPollPeriod = std::chrono::milliseconds(2);
// For ranks that finish their operations later.
constexpr auto kFinishTimeout = std::chrono::seconds(10);

// The first rank that a TimeoutError names; −1 for another error.
int late_rank(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const TimeoutError& error) {
    return error.ranks().empty() ? -1 : error.ranks().front();
  } catch (...) {
    return -1;
  }
}

}  // namespace

void NetworkWatch::State::fail(State& state, std::exception_ptr why) noexcept {
  const std::lock_guard lock(state.mutex);
  // Before the links: a rank that sees them end must find it.
  if (!state.why) state.why = std::move(why);
  state.is_broken = true;
  if (const int late = late_rank(state.why); late >= 0) state.monitor().report_late(late);
  state.links->abort();  // this rank may wait over them
  if (state.actions.abort) state.actions.abort();
}

std::exception_ptr NetworkWatch::State::await_links() const noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kDiagnosisTimeout;
  for (;;) {
    if (std::exception_ptr why = monitor().failure()) return why;
    if (std::chrono::steady_clock::now() > deadline) return nullptr;
    std::this_thread::sleep_for(kPollPeriod);
  }
}

std::exception_ptr NetworkWatch::State::find_error(const std::string& text) {
  std::string error;
  {
    const std::lock_guard lock(mutex);
    if (actions.find_error) error = actions.find_error();
  }
  if (error.empty()) return nullptr;
  if (std::exception_ptr why = await_links()) return why;
  return std::make_exception_ptr(NcclError(fmt::format("{}: failed: {}", text, error)));
}

std::exception_ptr NetworkWatch::State::find_lateness(std::uint64_t number,
                                                      std::chrono::milliseconds timeout,
                                                      std::string_view source) const {
  const auto progress = monitor().probe();
  if (std::exception_ptr why = monitor().failure()) return why;
  if (progress.empty()) return nullptr;  // another thread of this rank has found an error
  std::vector<int> stopped;
  std::vector<int> behind;
  for (std::size_t rank = 0; rank < progress.size(); ++rank) {
    if (!progress[rank]) stopped.push_back(static_cast<int>(rank));
    if (progress[rank] && progress[rank]->begun < number) behind.push_back(static_cast<int>(rank));
  }
  const std::vector<int>& late = stopped.empty() ? behind : stopped;
  if (late.empty()) {
    return std::make_exception_ptr(TimeoutError(
        fmt::format("collective: rank {} waited {}, but NCCL did not finish the operation that all "
                    "ranks have begun ({})",
                    everyone.rank, duration_text(timeout), source)));
  }
  return std::make_exception_ptr(TimeoutError(
      fmt::format("collective: rank {} waited {}, but rank(s) {} did not come to the operation on "
                  "their devices ({})",
                  everyone.rank, duration_text(timeout), fmt::join(late, ", "), source),
      late));
}

OperationDeadlines::Actions NetworkWatch::deadline_actions(const std::shared_ptr<State>& state) {
  return {.find_error = [state](const std::string& text) { return state->find_error(text); },
          .on_failure = [state](std::uint64_t,
                                std::exception_ptr why) { State::fail(*state, std::move(why)); },
          .cause = {},
          .find_lateness =
              [state](std::uint64_t number, std::chrono::milliseconds timeout,
                      std::string_view source) {
                return state->find_lateness(number, timeout, source);
              },
          .on_progress =
              [state](std::uint64_t begun, std::uint64_t finished) {
                state->monitor().set_progress({begun, finished});
              }};
}

NetworkWatch::NetworkWatch(const Membership& everyone, std::shared_ptr<HostLinks> links,
                           GroupTimeout timeout, Actions actions)
    : state_(new State{.everyone = everyone,
                       .links = std::move(links),
                       .mutex = {},
                       .actions = std::move(actions),
                       .why = {}}),
      deadlines_(everyone.device.index, std::move(timeout), deadline_actions(state_)) {
  state_->monitor().on_failure(
      [state = state_](std::exception_ptr why) { State::fail(*state, std::move(why)); });
}

NetworkWatch::~NetworkWatch() {
  state_->monitor().on_failure(nullptr);
  const std::lock_guard lock(state_->mutex);
  state_->actions = {};
}

void NetworkWatch::require_intact() const {
  if (!state_->is_broken) return;
  const std::lock_guard lock(state_->mutex);
  std::rethrow_exception(state_->why);
}

void NetworkWatch::await_diagnosis() const noexcept {
  if (std::exception_ptr why = state_->await_links()) State::fail(*state_, std::move(why));
}

void NetworkWatch::await_others() noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kFinishTimeout;
  const auto are_behind = [&] {
    for (const auto& progress : state_->monitor().probe()) {
      if (!progress || progress->finished < submitted_) return true;
    }
    return false;
  };
  while (is_intact() && are_behind() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPeriod);
  }
}

}  // namespace gantry
