// A driver that counts its calls and lets chosen ones fail.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/forwarding_driver.hpp>

namespace gantry::testing {

/// How an injected call fails: CUDA's number and name.
struct Failure {
  int code;
  std::string_view name;
};
inline constexpr Failure kInvalidValue{1, "cudaErrorInvalidValue"};
inline constexpr Failure kOutOfMemory{2, "cudaErrorMemoryAllocation"};
inline constexpr Failure kInvalidHandle{400, "cudaErrorInvalidResourceHandle"};
inline constexpr Failure kIllegalAddress{700, "cudaErrorIllegalAddress"};
inline constexpr Failure kUnknown{999, "cudaErrorUnknown"};

/// Takes the place of the process's driver while it lives and passes every call on to it.
///
///   FaultDriver faults;
///   faults.fail_on("record_event", 2);  // the second one from now throws CudaError
///   ...
///   EXPECT_EQ(faults.calls("record_event"), 2);
///
/// Make and destroy it only while no device work is in flight. Thread safety: all members.
class FaultDriver : public ForwardingDriver {
 public:
  FaultDriver() : ForwardingDriver(*exchange_driver(this)) {}
  ~FaultDriver() override { exchange_driver(&wrapped()); }

  /// Lets the `nth` call of `call` from now on (1 is the next one) and the `times` - 1 after it
  /// fail with `failure`. The calls that allocate and register_host answer kOutOfMemory with
  /// nothing, as drivers do. Calls that are noexcept cannot fail.
  void fail_on(std::string_view call, std::uint64_t nth, Failure failure = kUnknown,
               std::uint64_t times = 1) {
    if (call.starts_with("destroy_") || call == "restore_device" || nth == 0) {
      throw std::invalid_argument("fail_on: this call cannot fail");
    }
    const std::lock_guard lock(mutex_);
    const std::uint64_t first = counts_[std::string(call)] + nth;
    plans_.insert_or_assign(std::string(call), Plan{first, first + times, failure});
  }
  /// Forgets all planned failures.
  void fail_nothing() {
    const std::lock_guard lock(mutex_);
    plans_.clear();
  }
  /// How often `call` was made since the start or reset_counts.
  [[nodiscard]] std::uint64_t calls(std::string_view call) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(std::string(call));
    return found == counts_.end() ? 0 : found->second;
  }
  /// How often any call was made.
  [[nodiscard]] std::uint64_t total_calls() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [name, count] : counts_) sum += count;
    return sum;
  }
  /// Every call made, with its count: for sweeps that let each of them fail once.
  [[nodiscard]] std::map<std::string, std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  /// Starts all counts at 0 and forgets planned failures.
  void reset_counts() {
    const std::lock_guard lock(mutex_);
    counts_.clear();
    plans_.clear();
  }

  void* allocate(int device, std::size_t bytes) override {
    return is_out_of_memory("allocate") ? nullptr : wrapped().allocate(device, bytes);
  }
  void* allocate_pinned(std::size_t bytes) override {
    return is_out_of_memory("allocate_pinned") ? nullptr : wrapped().allocate_pinned(bytes);
  }
  bool register_host(void* data, std::size_t bytes) override {
    return !is_out_of_memory("register_host") && wrapped().register_host(data, bytes);
  }
  void* allocate_async(NativeStream stream, std::size_t bytes) override {
    return is_out_of_memory("allocate_async") ? nullptr : wrapped().allocate_async(stream, bytes);
  }
  NativeChunk create_chunk(int device, std::size_t bytes) override {
    return is_out_of_memory("create_chunk") ? NativeChunk::none
                                            : wrapped().create_chunk(device, bytes);
  }
  bool event_reached(NativeEvent event) noexcept override {
    return !count("event_reached") && wrapped().event_reached(event);
  }

 protected:
  void before_call(const char* call) override {
    if (const auto failure = count(call)) fail(call, *failure);
  }
  void before_noexcept_call(const char* call) noexcept override { count(call); }

 private:
  struct Plan {
    std::uint64_t first;  ///< count of the first call that fails
    std::uint64_t end;    ///< count of the first one after it that does not
    Failure failure;
  };

  // Counts the call; the failure that was planned for it, if any.
  std::optional<Failure> count(const char* call) noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = ++counts_[call];
    const auto plan = plans_.find(call);
    const bool fails =
        plan != plans_.end() && number >= plan->second.first && number < plan->second.end;
    return fails ? std::optional(plan->second.failure) : std::nullopt;
  }
  bool is_out_of_memory(const char* call) {
    const auto failure = count(call);
    if (!failure) return false;
    if (failure->code != kOutOfMemory.code) fail(call, *failure);
    return true;
  }
  [[noreturn]] static void fail(const char* call, const Failure& failure) {
    throw CudaError(std::string("Failed on purpose in a test: ") + std::string(failure.name) +
                        " [" + call + "]",
                    failure.code, failure.name);
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::string, Plan> plans_;
};

}  // namespace gantry::testing
