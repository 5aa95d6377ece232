#include "tensor/random/captured_draws.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "streams/graphs/condition.hpp"
#include "streams/graphs/graph_recording.hpp"
#include "tensor/target_of.hpp"

namespace gantry::detail {
namespace {

// What one graph draws from one generator.
class CapturedDraws final : public ReplayAction {
 public:
  // Takes the memory from the capture that `stream` takes part in.
  CapturedDraws(Generator generator, const Stream& stream)
      : generator_(std::move(generator)),
        words_(memory::allocate(stream, 2 * sizeof(std::uint64_t))) {}

  [[nodiscard]] kernels::RandomPosition next() {
    return {.offset = count_.fetch_add(1, std::memory_order_relaxed), .replay = words()};
  }

  void prepare(const Stream& stream) override {
    const Generator::Position first = generator_.take(count_.load(std::memory_order_relaxed));
    const Device device = generator_.device();
    const Stream own = device == stream.device() ? stream : Stream::current(device);
    if (own != stream) own.wait(stream);  // for the last replay, which may still read
    kernels::store_position(kernels::Target::on(own), words(), {first.seed, first.offset});
    if (own != stream) stream.wait(own);
  }

 private:
  [[nodiscard]] std::uint64_t* words() { return static_cast<std::uint64_t*>(words_.data()); }

  Generator generator_;
  memory::Buffer words_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace

kernels::RandomPosition next_draw(Generator& generator) {
  const Device device = generator.device();
  if (!device.is_cpu()) {
    const Stream stream = Stream::current(device);
    if (const auto recording = GraphRecording::of(stream)) {
      if (is_in_condition(stream)) {
        throw CaptureError(
            "random: expected a draw outside of graph_if and graph_while, but got one inside, "
            "where "
            "a replay does not know how often it runs",
            device.str());
      }
      const auto action = recording->find_or_add(
          generator.identity(), [&] { return std::make_shared<CapturedDraws>(generator, stream); });
      return std::static_pointer_cast<CapturedDraws>(action)->next();
    }
  }
  const Generator::Position at = generator.take();
  return {at.seed, at.offset};
}

}  // namespace gantry::detail
