#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace gantry {

// The setting that a deadline comes from.
enum class DeadlineSource : std::int32_t { variable, group, call };

[[nodiscard]] constexpr std::string_view deadline_text(DeadlineSource source) noexcept {
  switch (source) {
    case DeadlineSource::variable:
      break;
    case DeadlineSource::group:
      return "the group's timeout sets the deadline";
    case DeadlineSource::call:
      return "the call's timeout sets the deadline";
  }
  return "GANTRY_COLL_TIMEOUT sets the deadline";
}

// The deadline of a group's operations and host calls. Copies refer to the same deadline: the parts
// of a group share it.
// Thread safety: any thread; CallScopes one at a time.
class GroupTimeout {
  struct State {
    std::atomic<std::int64_t> group{0};  // in milliseconds
    std::atomic<std::int64_t> call{0};   // likewise
    std::atomic<bool> is_set{false};
  };

 public:
  using Duration = std::chrono::milliseconds;

  // The deadline that GANTRY_COLL_TIMEOUT sets, unless set() changes it.
  template <class Count, class Period>
  GroupTimeout(std::chrono::duration<Count, Period> timeout) : state_(std::make_shared<State>()) {
    state_->group = std::chrono::duration_cast<Duration>(timeout).count();
  }

  // The deadline of the call that blocks the host, else the group's.
  [[nodiscard]] Duration get() const noexcept {
    const std::int64_t call = state_->call;
    return Duration(call != 0 ? call : state_->group.load()) + extra_;
  }
  // The group's deadline.
  [[nodiscard]] Duration of_group() const noexcept { return Duration(state_->group.load()); }
  // The same deadline, `extra` later.
  [[nodiscard]] GroupTimeout later_by(Duration extra) const {
    GroupTimeout other = *this;
    other.extra_ += extra;
    return other;
  }
  // A deadline of another group, which begins as this one's.
  [[nodiscard]] GroupTimeout copy() const {
    GroupTimeout other(of_group());
    other.state_->is_set = is_set();
    return other;
  }
  // True after set().
  [[nodiscard]] bool is_set() const noexcept { return state_->is_set; }
  void set(Duration timeout) noexcept {
    state_->group = timeout.count();
    state_->is_set = true;
  }
  // `call` if it is not 0, else get().
  [[nodiscard]] Duration or_of_call(Duration call) const noexcept {
    return call.count() != 0 ? call + extra_ : get();
  }
  // Tells in an error what sets the deadline. `call`: the timeout of the call; 0: it has none.
  [[nodiscard]] std::string_view source(Duration call = {}) const noexcept {
    return deadline_text(kind_of_source(call));
  }
  [[nodiscard]] DeadlineSource kind_of_source(Duration call = {}) const noexcept {
    if (call.count() != 0 || state_->call != 0) return DeadlineSource::call;
    return is_set() ? DeadlineSource::group : DeadlineSource::variable;
  }

  // Gives a call that blocks the host its own deadline while it lives; 0: none.
  class CallScope {
   public:
    CallScope(const GroupTimeout& timeout, Duration call)
        : state_(call.count() != 0 ? timeout.state_.get() : nullptr) {
      if (state_ != nullptr) state_->call = call.count();
    }
    ~CallScope() {
      if (state_ != nullptr) state_->call = 0;
    }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    State* state_;
  };

 private:
  std::shared_ptr<State> state_;
  Duration extra_{0};
};

}  // namespace gantry
