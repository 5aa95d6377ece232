// Random programs of several streams, and how much memory of theirs is in use at each request.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/policy/size_policy.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::testing {

/// A place in a stream, of which the clocks of gantry learn nothing.
class Place {
 public:
  explicit Place(const Stream& stream) : event_(driver().create_event(stream.native().device, {})) {
    driver().record_event(event_, stream.native());
  }
  ~Place() {
    if (event_ != nullptr) driver().destroy_event(event_);
  }
  Place(Place&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Place& operator=(Place&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  [[nodiscard]] bool is_reached() const { return driver().event_reached(event_); }

 private:
  NativeEvent event_ = nullptr;
};

/// A random program that allocates, uses, shares and frees blocks on its streams.
///
/// A freed block is pending until every stream that was recorded on it has done the work from
/// before the free, and while its own stream has work.
class BoundProgram {
 public:
  /// How the program gets its blocks.
  struct Source {
    memory::Allocator* allocator = nullptr;
    std::function<std::size_t()> reserved{};
    /// Blocks of other pools; may be empty.
    std::vector<std::function<memory::Block(const Stream&, std::size_t)>> pools{};
    bool has_own_streams = true;  ///< a block belongs to its stream
    bool frees_on_sync = false;   ///< the end of a free is not visible before a synchronization
    bool captures = true;
    /// Streams have work for a long time. Without it, no request above the bound finds work: such
    /// an allocator releases memory only while the devices have none.
    bool holds = true;
    std::size_t most_used = std::size_t{32} << 20;
    double largest_exponent = 22.5;  ///< of the power of two of a size
  };

  BoundProgram(Source source, std::vector<Stream> streams, unsigned seed)
      : source_(std::move(source)), streams_(std::move(streams)), random_(seed) {
    holds_.resize(streams_.size());
  }
  ~BoundProgram() {
    try {
      finish();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  void step() {
    const auto choice = pick(100);
    if (choice < 46 || live_.empty()) {
      allocate();
    } else if (choice < 84) {
      deallocate();
    } else if (choice < 93) {
      share(live_[pick(live_.size())]);
    } else if (choice < 96 && source_.holds) {
      toggle_hold(pick(streams_.size()));
    } else if (choice < 99 || !source_.captures) {
      work_on(pick(streams_.size()));
    } else {
      capture();
    }
  }
  void finish() {
    while (!live_.empty()) deallocate();
    synchronize();
  }

  /// The most that was in use at a request, and the most that was reserved after one.
  [[nodiscard]] std::size_t most_used() const { return most_used_; }
  [[nodiscard]] std::size_t most_reserved() const { return most_reserved_; }
  /// The most by which `reserved` was above twice what had been in use by then.
  [[nodiscard]] std::size_t most_above() const { return most_above_; }

 private:
  struct Used {
    memory::Block block{};
    std::size_t bytes = 0;
    std::size_t stream = 0;
    std::vector<std::size_t> users{};
  };
  struct Pending {
    std::size_t bytes = 0;
    std::size_t stream = 0;
    std::vector<Place> uses{};
  };

  std::size_t pick(std::size_t n) { return random_() % n; }
  std::size_t some_bytes() {
    return static_cast<std::size_t>(
        std::exp2(std::uniform_real_distribution<double>(9, source_.largest_exponent)(random_)));
  }

  // What is in use, without the request.
  std::size_t count_used() {
    std::vector<bool> is_busy(streams_.size());
    // The events of a capture must not be asked for. No stream has work before one.
    for (std::size_t at = 0; !is_capturing_ && at < streams_.size(); ++at) {
      is_busy[at] = !Place(streams_[at]).is_reached();
    }
    std::erase_if(pending_, [&](const Pending& block) {
      if (source_.frees_on_sync) return false;
      if (source_.has_own_streams && is_busy[block.stream]) return false;
      return std::ranges::all_of(block.uses, &Place::is_reached);
    });
    std::size_t bytes = captured_bytes_;
    for (const Used& block : live_) bytes += block.bytes;
    for (const Pending& block : pending_) bytes += block.bytes;
    return bytes;
  }

  // Frees blocks until a request of `size` bytes is within the most that the program uses.
  void make_room(std::size_t size) {
    if (is_capturing_) return;
    if (count_used() + size > source_.most_used) synchronize();
    while (count_used() + size > source_.most_used && !live_.empty()) {
      deallocate();
      synchronize();
    }
  }
  template <class Allocate>
  memory::Block request(std::size_t bytes, Allocate&& allocate) {
    const std::size_t size = memory::block_bytes(bytes);
    make_room(size);
    if (!source_.holds && !is_capturing_ && source_.reserved() + size > 2 * most_used_)
      synchronize();
    most_used_ = std::max(most_used_, count_used() + size);
    const memory::Block block = allocate();
    const std::size_t reserved = source_.reserved();
    most_reserved_ = std::max(most_reserved_, reserved);
    if (reserved > 2 * most_used_) {
      most_above_ = std::max(most_above_, reserved - 2 * most_used_);
    }
    return block;
  }
  void allocate() {
    const std::size_t at = pick(streams_.size());
    const Stream& stream = streams_[at];
    const std::size_t bytes = some_bytes();
    const std::size_t from = pick(2 + source_.pools.size());
    Used used{.bytes = memory::block_bytes(bytes), .stream = at};
    used.block = request(bytes, [&] {
      return from < 2 ? source_.allocator->allocate(stream, bytes)
                      : source_.pools[from - 2](stream, bytes);
    });
    live_.push_back(std::move(used));
    use(live_.back(), at);
    if (!source_.has_own_streams) record(live_.back(), at);
  }
  // The stream touches the block, or works while the program says that it touches it.
  void use(const Used& used, std::size_t at) { fill(used.block.data, used.block.bytes, at); }
  // As above, at the same time as other streams: each has a part of the block.
  void use_part(const Used& used, std::size_t at) {
    const std::size_t bytes = used.block.bytes / streams_.size();
    fill(static_cast<std::byte*>(used.block.data) + at * bytes, bytes, at);
  }
  void fill(void* data, std::size_t bytes, std::size_t at) {
    driver().fill(data, 1, std::min<std::size_t>(bytes, 4096), streams_[at].native());
  }
  void record(Used& used, std::size_t at) {
    if (pick(2) == 0) {
      used.block.allocator->record_stream(used.block, streams_[at]);
    } else {
      used.block.allocator->record_use(used.block, streams_[at]);
    }
    used.users.push_back(at);
  }
  void share(Used& used) {
    const std::size_t at = pick(streams_.size());
    if (at == used.stream && source_.has_own_streams) return;
    if (at != used.stream) streams_[at].wait(streams_[used.stream]);
    use_part(used, at);
    record(used, at);
    if (pick(4) == 0) streams_[used.stream].wait(streams_[at]);
  }
  void deallocate() {
    std::swap(live_[pick(live_.size())], live_.back());
    Used used = std::move(live_.back());
    live_.pop_back();
    used.block.allocator->deallocate(used.block);
    Pending pending{.bytes = used.bytes, .stream = used.stream};
    for (const std::size_t user : used.users) pending.uses.emplace_back(streams_[user]);
    pending_.push_back(std::move(pending));
  }
  void work_on(std::size_t at) {
    driver().launch_host_function(
        streams_[at].native(), [](void*) {}, nullptr);
  }
  void toggle_hold(std::size_t at) {
    if (holds_[at] == nullptr) {
      static_cast<void>(streams_[at].query());  // what was freed until now is known to be complete
      holds_[at] = std::make_unique<StreamHold>(streams_[at]);
    } else {
      holds_[at].reset();
    }
  }
  void synchronize() {
    for (auto& hold : holds_) hold.reset();
    driver().synchronize_device(streams_.front().native().device);
    pending_.clear();
  }
  // Blocks of a capture are in use as long as its graph.
  void capture() {
    std::vector<std::size_t> sizes(1 + pick(4));
    std::size_t sum = 0;
    // Some captures fill all memory that the program may use with large blocks.
    const bool is_large = pick(2) == 0;
    for (std::size_t& bytes : sizes) {
      bytes = is_large ? source_.most_used / (2 * sizes.size()) + pick(source_.most_used / 32)
                       : some_bytes() / 2 + 1;
      sum += memory::block_bytes(bytes);
    }
    make_room(sum);
    synchronize();
    // Not the last one: allocators of tests do not ask a stream about its work before its capture.
    const Stream& stream = streams_[capturing_ = 1 + capturing_ % (streams_.size() - 1)];
    CapturedGraph graph(stream, Begun::by_gantry);
    is_capturing_ = true;
    std::vector<memory::Buffer> outputs;
    for (const std::size_t bytes : sizes) {
      outputs.emplace_back(
          request(bytes, [&] { return source_.allocator->allocate(stream, bytes); }));
      captured_bytes_ += memory::block_bytes(bytes);
      driver().fill(outputs.back().data(), 1, 1, stream.native());
      if (pick(2) == 0) outputs.pop_back();
    }
    graph.end();
    is_capturing_ = false;
    graph.replay(stream);
    driver().synchronize_stream(stream.native());
    outputs.clear();
    graph.destroy_and_wait();
    captured_bytes_ = 0;
  }

  const Source source_;
  const std::vector<Stream> streams_;
  std::mt19937_64 random_;
  std::vector<Used> live_;
  std::vector<Pending> pending_;
  std::vector<std::unique_ptr<StreamHold>> holds_;
  std::size_t captured_bytes_ = 0;
  bool is_capturing_ = false;
  std::size_t capturing_ = 1;  // the stream of the last capture
  std::size_t most_used_ = 0;
  std::size_t most_reserved_ = 0;
  std::size_t most_above_ = 0;
};

}  // namespace gantry::testing
