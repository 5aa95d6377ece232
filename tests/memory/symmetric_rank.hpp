// A rank with a symmetric pool, and where its blocks have to be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/symmetric_pool.hpp>

#include "tests/memory/shadow_owner.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::testing {

/// Where symmetric blocks must lie, by looking at every gap.
class OffsetModel {
 public:
  std::size_t allocate(std::size_t bytes) {
    const std::size_t offset = where(bytes);
    live_.emplace(offset, rounded(bytes));
    return offset;
  }
  void free(std::size_t offset) { live_.erase(offset); }
  [[nodiscard]] std::size_t where(std::size_t bytes) const {
    std::optional<std::pair<std::size_t, std::size_t>> best;  // size of the gap, offset
    std::size_t end = 0;
    for (const auto& [offset, size] : live_) {
      const std::size_t gap = offset - end;
      if (gap >= rounded(bytes) && (!best || gap < best->first)) best = {gap, end};
      end = offset + size;
    }
    return best ? best->second : end;
  }
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

 private:
  std::map<std::size_t, std::size_t> live_;
};

/// One rank: its pool, and what only it does.
class Rank {
 public:
  Rank(int device, std::size_t bytes, unsigned seed)
      : pool(Device::cuda(device), bytes), random_(seed) {
    for (int i = 0; i < 3; ++i) streams_.push_back(Stream::from_pool(Device::cuda(device)));
    holds_.resize(streams_.size());
  }
  ~Rank() {
    holds_.clear();
    for (auto& held : symmetric) drop(held.second);
    for (auto& held : local_) drop(held);
    for (const Stream& stream : streams_) stream.synchronize();
  }

  /// Things that must not matter to the other rank.
  void fidget() {
    for (auto steps = random_() % 4; steps > 0; --steps) {
      const auto which = random_() % streams_.size();
      switch (random_() % 4) {
        case 0:
          holds_[which] = std::make_unique<StreamHold>(streams_[which]);
          break;
        case 1:
          holds_[which].reset();
          break;
        case 2:
          if (local_.size() > 12) break;
          try {
            const std::size_t bytes = 1 + random_() % (256 * 1024);
            local_.push_back(hold(pool.allocate_local(bytes, streams_[which]), which));
          } catch (const OutOfMemoryError&) {  // the symmetric blocks are in the way
          }
          break;
        default:
          if (local_.empty()) break;
          std::swap(local_[random_() % local_.size()], local_.back());
          drop(local_.back());
          local_.pop_back();
      }
    }
  }
  std::size_t allocate(int name, std::size_t bytes) {
    const auto which = random_() % streams_.size();
    memory::Buffer buffer = pool.allocate(bytes, streams_[which]);
    const std::size_t offset = pool.offset_of(buffer);
    symmetric.emplace(name, hold(std::move(buffer), which));
    return offset;
  }
  void free(int name) {
    drop(symmetric.at(name));
    symmetric.erase(name);
  }
  bool blocks_overlap() const {
    std::map<std::uintptr_t, std::uintptr_t> ranges;
    const auto add = [&ranges](const Held& held) {
      const auto begin = reinterpret_cast<std::uintptr_t>(held.buffer.data());
      ranges.emplace(begin, begin + held.buffer.bytes());
    };
    for (const auto& [name, held] : symmetric) add(held);
    for (const Held& held : local_) add(held);
    std::uintptr_t end = 0;
    for (const auto& [begin, stop] : ranges) {
      if (begin < end) return true;
      end = stop;
    }
    return ranges.size() != symmetric.size() + local_.size();
  }
  [[nodiscard]] int violations() const { return shadow_.violations(); }

 private:
  struct Held {
    memory::Buffer buffer;
    std::size_t stream = 0;
    std::unique_ptr<ShadowOwner::Life> life;
  };
  Held hold(memory::Buffer buffer, std::size_t which) {
    auto life = shadow_.begin(buffer.data(), buffer.bytes(), streams_[which]);
    return {std::move(buffer), which, std::move(life)};
  }
  void drop(Held& held) {
    if (random_() % 3 == 0) {
      const Stream& user = streams_[random_() % streams_.size()];
      user.wait(streams_[held.stream]);
      shadow_.use(*held.life, user);
      const bool precise = random_() % 2 == 0;
      memory::Allocator& allocator = pool.allocator();
      precise ? allocator.record_use(held.buffer.block(), user)
              : allocator.record_stream(held.buffer.block(), user);
    }
    shadow_.end(std::move(held.life), streams_[held.stream]);
    held.buffer.reset();
  }

 public:
  memory::SymmetricPool pool;
  std::map<int, Held> symmetric;

 private:
  std::mt19937 random_;
  ShadowOwner shadow_;
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<StreamHold>> holds_;
  std::vector<Held> local_;
};

}  // namespace gantry::testing
