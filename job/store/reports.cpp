#include "job/store/reports.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <gantry/core/error.hpp>

namespace gantry::store {

Reports::Reports() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Error(fmt::format("store: {}", std::strerror(errno)));
}

void Reports::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

void Reports::add(const Report& report) {
  {
    const std::lock_guard lock(mutex_);
    reports_.push_back(report);
  }
  wake();
}

void Reports::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake();
}

std::optional<std::vector<Report>> Reports::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(wake_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  if (stops_) return std::nullopt;
  return std::exchange(reports_, {});
}

}  // namespace gantry::store
