#include "tensor/random/captured_draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

#include "streams/capture.hpp"
#include "streams/graphs/condition.hpp"
#include "tensor/random/generator_state.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {
namespace {

constexpr std::string_view kMember = "Generator::device";

const GeneratorAccess::State& state_of(const Generator& generator) {
  return GeneratorAccess::state(generator, kMember);
}

}  // namespace

CapturedDraws::CapturedDraws(Generator generator, std::shared_ptr<CapturedDraws> origin)
    : generator_(std::move(generator)),
      origin_(std::move(origin)),
      offset_(origin_ == nullptr ? 0 : origin_->offset()),
      family_(origin_ == nullptr ? std::make_shared<Family>() : origin_->family_) {}

const std::uint64_t* CapturedDraws::words(const Stream& stream) {
  if (origin_ != nullptr) return origin_->words(stream);
  const std::lock_guard lock(mutex_);
  if (!words_) words_ = memory::allocate(stream, 2 * sizeof(std::uint64_t));
  return static_cast<const std::uint64_t*>(words_->data());
}

kernels::RandomPosition CapturedDraws::next(const Stream& stream, std::uint64_t count) {
  const std::uint64_t* replay = words(stream);
  return {.offset = skip(count), .replay = replay};
}

std::uint64_t CapturedDraws::skip(std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  return std::exchange(offset_, offset_ + count);
}

std::uint64_t CapturedDraws::offset() const {
  const std::lock_guard lock(mutex_);
  return offset_;
}

void CapturedDraws::hand_out(const Tensor& state, std::uint64_t offset) {
  std::vector<std::uint8_t> bytes = state.to_vector<std::uint8_t>();
  const std::lock_guard lock(family_->mutex);
  family_->handed_out.push_back({state, std::move(bytes), offset});
}

std::optional<std::uint64_t> CapturedDraws::find(const Tensor& state) const {
  const std::vector<std::uint8_t> bytes = state.to_vector<std::uint8_t>();
  const std::lock_guard lock(family_->mutex);
  const auto found = std::ranges::find_if(family_->handed_out, [&](const HandedOut& known) {
    return known.state.data_ptr() == state.data_ptr() && known.bytes == bytes;
  });
  if (found == family_->handed_out.end()) return std::nullopt;
  return found->offset;
}

bool CapturedDraws::has_handed_out(const Tensor& state) const { return find(state).has_value(); }

void CapturedDraws::rewind(const Tensor& state) {
  const std::optional<std::uint64_t> offset = find(state);
  if (!offset) return;
  const std::lock_guard lock(mutex_);
  offset_ = *offset;
}

bool CapturedDraws::is_idle() const {
  if (origin_ != nullptr) return true;
  const std::lock_guard lock(mutex_);
  return offset_ == 0 && !words_;
}

void CapturedDraws::prepare(const Stream& stream) {
  const Device device = generator_.device();
  const Generator::Position first = GeneratorAccess::state(generator_, kMember).take(offset());
  if (!words_) return;
  const Stream own = device == stream.device() ? stream : Stream::current(device);
  if (own != stream) own.wait(stream);  // for the last replay, which may still read
  kernels::store_position(kernels::Target::on(own), static_cast<std::uint64_t*>(words_->data()),
                          {first.seed, first.offset});
  if (own != stream) stream.wait(own);
}

std::shared_ptr<GraphRecording> recording_on(Device device) {
  if (device.is_cpu() || !GraphRecording::is_any_under_way()) return nullptr;
  if (device.index >= device_count()) return nullptr;
  return GraphRecording::of(Stream::current(device));
}

std::shared_ptr<CapturedDraws> captured_draws(const Generator& generator) {
  const auto& state = state_of(generator);
  const auto recording = recording_on(state.device);
  if (recording == nullptr || state.birth.lock() == recording) return nullptr;
  return std::static_pointer_cast<CapturedDraws>(recording->find_or_add(
      generator.identity(), [&] { return std::make_shared<CapturedDraws>(generator); }));
}

void follow_captured_draws(const Generator& clone, std::shared_ptr<CapturedDraws> origin) {
  const auto recording = recording_on(state_of(clone).device);
  static_cast<void>(recording->find_or_add(
      clone.identity(), [&] { return std::make_shared<CapturedDraws>(clone, std::move(origin)); }));
}

bool follows_captured_draws(const Generator& generator) {
  if (!GraphRecording::is_any_under_way()) return false;
  if (captured_draws(generator) != nullptr) return true;
  for (int i = 0; i < device_count(); ++i) {
    const auto recording = recording_on(Device::cuda(i));
    if (recording == nullptr) continue;
    const auto action = recording->find(generator.identity());
    if (action != nullptr && static_cast<CapturedDraws&>(*action).has_work()) return true;
  }
  return false;
}

void check_unconditional(std::string_view op, const Generator& generator) {
  const Device device = state_of(generator).device;
  if (recording_on(device) == nullptr || !is_in_condition(Stream::current(device))) return;
  throw CaptureError(
      fmt::format("{}: expected a draw outside of graph_if and graph_while, but got one inside, "
                  "where a replay does not know how often it runs",
                  op),
      device.str());
}

kernels::RandomPosition next_draw(Generator& generator, std::uint64_t count) {
  auto& state = GeneratorAccess::state(generator, kMember);
  check_unconditional("random", generator);
  if (const auto draws = captured_draws(generator)) {
    return draws->next(Stream::current(state.device), count);
  }
  if (!state.device.is_cpu()) {
    const Stream stream = Stream::current(state.device);
    if (GraphRecording::of(stream) == nullptr && is_captured(stream.native())) {
      throw CaptureError(
          "random: expected the capture of a graph, but got one that the program began without "
          "gantry, whose replays would repeat the numbers; capture with GraphCapture",
          state.device.str());
    }
  }
  const Generator::Position at = state.take(count);
  return {at.seed, at.offset};
}

}  // namespace gantry::detail
