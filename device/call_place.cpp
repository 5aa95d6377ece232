#include "device/call_place.hpp"

#include <fmt/format.h>

#include <atomic>

namespace gantry {

namespace {

constinit std::atomic<const CallPlaceSource*> source_of_places{nullptr};

}  // namespace

std::string CallPlace::describe() const {
  if (place.empty()) return function;
  return function.empty() ? place : fmt::format("{} at {}", function, place);
}

void set_call_place_source(const CallPlaceSource* source) noexcept {
  source_of_places.store(source, std::memory_order_release);
}

std::uint32_t capture_call_place() noexcept {
  const CallPlaceSource* const source = source_of_places.load(std::memory_order_acquire);
  return source == nullptr ? 0 : source->capture();
}

CallPlace describe_call_place(std::uint32_t number) {
  const CallPlaceSource* const source = source_of_places.load(std::memory_order_acquire);
  return source == nullptr || number == 0 ? CallPlace{} : source->describe(number);
}

}  // namespace gantry
