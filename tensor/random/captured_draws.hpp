// Draws of random generators, also in captures.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/tensor/random.hpp>

#include "kernels/random/random.hpp"
#include "streams/graphs/graph_recording.hpp"

namespace gantry::detail {

// Note [Captured draws]
// A captured kernel has the same arguments at each replay. So the position of the generator cannot
// be an argument: each replay draws the numbers that the eager program would draw then. The kernel
// reads the position from device memory instead. A replay takes as many offsets from the generator
// as the capture drew, and writes the first into that memory before the graph runs. The graph owns
// that memory, with one position for each generator.
//
// The generator itself stays during the capture. The position of its captured work is relative to
// the position that a replay finds. advance() moves it forward, and set_state() moves it back to a
// state that get_state() returned in the same capture. Both hold at each replay. A position that
// is not relative, such as a seed, would hold at the first replay only, and is a CaptureError.
//
// A generator that is made from a seed inside the capture starts at the same position in each eager
// run. Its captured work has fixed positions.

// What one graph draws from one generator.
class CapturedDraws final : public ReplayAction {
 public:
  // For the work of `generator` in a capture. With `origin` it is a clone, whose work begins where
  // `origin` is now; replays do not advance it.
  explicit CapturedDraws(Generator generator, std::shared_ptr<CapturedDraws> origin = nullptr);

  // The next `count` positions of the captured work. The memory behind them is taken from the
  // capture that `stream` takes part in.
  [[nodiscard]] kernels::RandomPosition next(const Stream& stream, std::uint64_t count);
  // Leaves out `count` positions. Returns the offset before.
  std::uint64_t skip(std::uint64_t count);
  // Offsets since the beginning of the replay.
  [[nodiscard]] std::uint64_t offset() const;
  // Remembers `state` as the state at `offset`.
  void hand_out(const Tensor& state, std::uint64_t offset);
  // True if hand_out() of this generator or of a clone had that tensor, and its bytes have not
  // changed. The offsets of clones have one beginning.
  [[nodiscard]] bool has_handed_out(const Tensor& state) const;
  // Goes back to the offset of `state`. Precondition: has_handed_out(state).
  void rewind(const Tensor& state);
  // True after a draw or a skip.
  [[nodiscard]] bool has_work() const { return origin_ != nullptr || !is_idle(); }

  void prepare(const Stream& stream) override;
  [[nodiscard]] bool is_idle() const override;

 private:
  struct HandedOut {
    Tensor state;  // keeps the address
    std::vector<std::uint8_t> bytes;
    std::uint64_t offset;
  };

  // Device memory with the position of a replay.
  [[nodiscard]] const std::uint64_t* words(const Stream& stream);
  struct Family {
    std::mutex mutex;
    std::vector<HandedOut> handed_out;
  };
  // The offset of `state`; none if it is no state of the family.
  [[nodiscard]] std::optional<std::uint64_t> find(const Tensor& state) const;

  Generator generator_;
  const std::shared_ptr<CapturedDraws> origin_;
  mutable std::mutex mutex_;
  std::optional<memory::Buffer> words_;
  std::uint64_t offset_ = 0;
  const std::shared_ptr<Family> family_;  // with the origin and all clones
};

// The capture of a Graph on the current stream of `device`; nullptr if there is none.
[[nodiscard]] std::shared_ptr<GraphRecording> recording_on(Device device);
// The captured work that calls of `generator` concern: in the capture of a Graph on the current
// stream of its device. nullptr if there is none, or if the generator has fixed positions there.
[[nodiscard]] std::shared_ptr<CapturedDraws> captured_draws(const Generator& generator);
// Makes captured work of `clone` begin where `origin` is now, in the same capture.
void follow_captured_draws(const Generator& clone, std::shared_ptr<CapturedDraws> origin);
// True if captured work of `generator` precedes the call: in the capture of its device's current
// stream, or of another current stream of the calling thread.
[[nodiscard]] bool follows_captured_draws(const Generator& generator);
// Throws CaptureError that names `op` if the generator's device captures the body of a condition.
void check_unconditional(std::string_view op, const Generator& generator);

// The position of the generator's next `count` draws on the current stream of its device. In the
// capture of a Graph it is relative to a position that each replay sets; the generator itself
// stays. Throws CaptureError in the body of a condition, and in a capture that no Graph began.
[[nodiscard]] kernels::RandomPosition next_draw(Generator& generator, std::uint64_t count = 1);

}  // namespace gantry::detail
