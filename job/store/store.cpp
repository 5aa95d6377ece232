#include <gantry/extend/store.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {

void Store::barrier(std::string_view name, int count, std::chrono::milliseconds timeout) {
  if (count < 1) {
    throw InvalidArgument(fmt::format(
        "Store::barrier: expected at least 1 caller at barrier '{}', but got {}", name, count));
  }
  const std::string arrived = fmt::format("barrier/{}/arrived", name);
  const std::string open = fmt::format("barrier/{}/open", name);
  const std::int64_t mine = add(arrived, 1);
  if (mine > count) {
    throw InvalidArgument(
        fmt::format("Store::barrier: expected {} callers at barrier '{}', but got caller {}", count,
                    name, mine));
  }
  if (mine == count) {
    set(open, "");
    return;
  }
  try {
    wait(std::span(&open, 1), timeout);
  } catch (const TimeoutError&) {
    throw TimeoutError(
        fmt::format("Store::barrier: expected {} callers at barrier '{}' within {} ms, but got {}",
                    count, name, timeout.count(), try_get(arrived).value_or("0")));
  }
}

}  // namespace gantry
