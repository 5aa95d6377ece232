// A driver that forwards to another driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// Forwards every call to another driver. A derived class overrides the calls that it changes. It
/// overrides before_call() to count, trace or refuse all calls.
///
///   class Tracer : public ForwardingDriver {
///     using ForwardingDriver::ForwardingDriver;
///     void before_call(const char* call) override { std::puts(call); }
///   };
///
/// Thread safety: that of the driver behind it.
class ForwardingDriver : public Driver {
 public:
  /// Forwards to `wrapped`, which must outlive this driver.
  explicit ForwardingDriver(Driver& wrapped) : wrapped_(wrapped) {}
  ForwardingDriver(const ForwardingDriver&) = delete;
  ForwardingDriver& operator=(const ForwardingDriver&) = delete;

  [[nodiscard]] Platform platform() const noexcept override { return wrapped_.platform(); }

#define GANTRY_DRIVER_CALL(name, parameters, arguments, ...) \
  void name parameters __VA_ARGS__ override {                \
    before<noexcept(wrapped_.name arguments)>(#name);        \
    wrapped_.name arguments;                                 \
  }
#define GANTRY_DRIVER_VALUE(result, name, parameters, arguments, ...) \
  [[nodiscard]] result name parameters __VA_ARGS__ override {         \
    before<noexcept(wrapped_.name arguments)>(#name);                 \
    return wrapped_.name arguments;                                   \
  }
#define GANTRY_DRIVER_OWNING_CALL(name, parameters, arguments) \
  void name parameters override {                              \
    try {                                                      \
      before_call(#name);                                      \
    } catch (...) {                                            \
      release(data); /* also if the call is refused */         \
      throw;                                                   \
    }                                                          \
    wrapped_.name arguments;                                   \
  }
#include <gantry/extend/driver/all_calls.inc>
#undef GANTRY_DRIVER_CALL
#undef GANTRY_DRIVER_OWNING_CALL
#undef GANTRY_DRIVER_VALUE

 protected:
  /// Runs before a call is forwarded. `call` is the name of the member function, a string literal.
  /// If it throws, the call is not forwarded. platform() does not call it.
  virtual void before_call(const char* call) { static_cast<void>(call); }
  /// The same for the calls that are noexcept.
  virtual void before_noexcept_call(const char* call) noexcept { static_cast<void>(call); }

  /// The driver behind this one.
  [[nodiscard]] Driver& wrapped() const noexcept { return wrapped_; }

 private:
  template <bool kIsNoexcept>
  void before(const char* call) noexcept(kIsNoexcept) {
    if constexpr (kIsNoexcept) {
      before_noexcept_call(call);
    } else {
      before_call(call);
    }
  }

  Driver& wrapped_;
};

}  // namespace gantry
