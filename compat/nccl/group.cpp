#include "compat/nccl/group.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "compat/nccl/fallback.hpp"
#include "compat/nccl/run.hpp"

namespace gantry::nccl_api {

namespace {

// Runs the calls beside each other. Throws the first error, once all have ended.
void run_beside(const std::vector<std::function<void()>>& calls) {
  if (calls.size() == 1) return calls.front()();
  std::vector<std::exception_ptr> errors(calls.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        calls[i]();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

CallGroup& CallGroup::mine() {
  thread_local CallGroup group;
  return group;
}

void CallGroup::end() {
  if (depth_ == 0) throw InvalidArgument("expected an open group, but ncclGroupStart opened none");
  if (--depth_ > 0) return;
  if (!std::exchange(has_theirs_, false)) return run_own();
  std::exception_ptr error;
  try {
    run_own();
  } catch (...) {
    error = std::current_exception();
  }
  theirs::end_group();
  if (error) std::rethrow_exception(error);
}

void CallGroup::run_own() {
  const auto host_calls = std::exchange(host_calls_, {});
  auto submissions = std::exchange(submissions_, std::exchange(spare_, {}));
  if (const auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  if (!host_calls.empty()) run_beside(host_calls);
  run_all(submissions);
  submissions.clear();
  spare_ = std::move(submissions);
}

void CallGroup::run_all(const std::vector<Submission>& submissions) {
  const bool has_several = submissions.size() > 1;
  std::vector<const Submission*> ready;
  std::vector<std::function<void()>> blocking;
  ready.reserve(submissions.size());
  for (const Submission& one : submissions) {
    if (has_several && one.rank->blocks_host()) {
      blocking.emplace_back([&one] { run_all({&one}); });
    } else {
      ready.push_back(&one);
    }
  }
  run_all(ready);
  if (!blocking.empty()) run_beside(blocking);
}

// Runs the first collective of each rank, then the second, and so on; then their messages. See Note
// [Steps of a collective].
void CallGroup::run_all(const std::vector<const Submission*>& submissions) {
  std::size_t most = 0;
  for (const Submission* one : submissions) most = std::max(most, one->operations.size());
  for (std::size_t i = 0; i < most; ++i) {
    std::vector<CollectiveRun> runs;
    runs.reserve(submissions.size());
    for (const Submission* one : submissions) {
      if (i >= one->operations.size() || one->operations[i].call.is_message()) continue;
      runs.emplace_back(*one->rank, one->rank->group(), one->operations[i]);
    }
    for (CollectiveRun& run : runs) run.prepare();
    for (CollectiveRun& run : runs) run.submit();
    for (CollectiveRun& run : runs) run.complete();
  }
  for (const Submission* one : submissions) run_messages(*one->rank, one->operations);
}

void CallGroup::fail(const std::exception_ptr& error) {
  if (is_open() && !error_) error_ = error;
}

bool CallGroup::submit(const std::shared_ptr<Rank>& rank, const Operation& operation) {
  if (ncclComm_t const theirs = rank->theirs()) {
    if (is_open() && !has_theirs_) {
      theirs::start_group();
      has_theirs_ = true;
    }
    theirs::run(theirs, operation);
    return true;
  }
  const Operation known = checked(*rank, operation);
  if (!is_open()) {
    run(*rank, known);
    return false;
  }
  KnownOperation operation_and_arrays(*rank, known);
  auto found = std::ranges::find(submissions_, rank, &Submission::rank);
  if (found == submissions_.end()) found = submissions_.insert(found, {rank, {}});
  found->operations.push_back(std::move(operation_and_arrays));
  return false;
}

void CallGroup::submit_host_call(std::function<void()> call) {
  if (!is_open()) return call();
  host_calls_.push_back(std::move(call));
}

}  // namespace gantry::nccl_api
