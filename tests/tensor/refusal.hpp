// The error of a call.
#pragma once

#include <functional>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry::testing {

/// The class, text and device of the exception of a call; empty if there was none.
struct Refusal {
  std::string kind;
  std::string text;
  std::string device;
};

inline Refusal refusal_of(const std::function<void()>& call) {
  const auto text = [](const char* kind, const Error& error) {
    return Refusal{kind, error.what(), error.device()};
  };
  try {
    call();
  } catch (const ShapeError& error) {
    return text("ShapeError", error);
  } catch (const IndexError& error) {
    return text("IndexError", error);
  } catch (const DTypeError& error) {
    return text("DTypeError", error);
  } catch (const DeviceMismatchError& error) {
    return text("DeviceMismatchError", error);
  } catch (const InvalidArgument& error) {
    return text("InvalidArgument", error);
  } catch (const NotSupported& error) {
    return text("NotSupported", error);
  } catch (const Error& error) {
    return text("Error", error);
  }
  return {};
}

}  // namespace gantry::testing
