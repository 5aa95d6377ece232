// Who owns device memory at the moment that the device reaches it, not when the host submits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::testing {

/// A model of all memory in which tasks of the streams take and give back ranges.
///
/// A range is taken by a task in the order of the stream that it was allocated on. It is given back
/// when everything that was submitted for it has run. A range that is taken while another one still
/// covers a part of it was reused too early. Thread safety: every member.
class ShadowOwner {
 public:
  /// One life of a block, from its allocation to the last task that uses it.
  class Life {
   public:
    Life(ShadowOwner& shadow, const void* data, std::size_t bytes)
        : shadow_(shadow), begin_(reinterpret_cast<std::uintptr_t>(data)), end_(begin_ + bytes) {}

   private:
    friend class ShadowOwner;
    ShadowOwner& shadow_;
    const std::uintptr_t begin_;
    const std::uintptr_t end_;
    std::atomic<int> tasks_{1};  ///< submitted and not run, and one for the owner
  };

  /// The block is in the hands of its owner; `stream` takes the range in its order.
  [[nodiscard]] std::unique_ptr<Life> begin(const void* data, std::size_t bytes,
                                            const Stream& stream) {
    auto life = std::make_unique<Life>(*this, data, bytes);
    life->tasks_.fetch_add(1);
    driver().launch_host_function(stream.native(), &ShadowOwner::take, life.get());
    return life;
  }
  /// `stream` works with the block.
  void use(Life& life, const Stream& stream) {
    life.tasks_.fetch_add(1);
    driver().launch_host_function(stream.native(), &ShadowOwner::finish, &life);
  }
  /// The owner is about to free the block.
  void end(std::unique_ptr<Life> life, const Stream& stream) {
    use(*life, stream);
    finish(life.release());
  }

  /// Ranges that were taken while somebody else's were there.
  [[nodiscard]] int violations() const { return violations_.load(); }
  /// Ranges that are taken now.
  [[nodiscard]] std::size_t taken() const {
    const std::lock_guard lock(mutex_);
    return lives_.size();
  }

 private:
  static void take(void* data) {
    Life& life = *static_cast<Life*>(data);
    {
      ShadowOwner& self = life.shadow_;
      const std::lock_guard lock(self.mutex_);
      const auto after = self.lives_.lower_bound(life.begin_);
      const bool hits_next = after != self.lives_.end() && after->first < life.end_;
      const bool hits_previous =
          after != self.lives_.begin() && std::prev(after)->second->end_ > life.begin_;
      if (hits_next || hits_previous) ++self.violations_;
      self.lives_.insert_or_assign(life.begin_, &life);
    }
    finish(&life);
  }
  static void finish(void* data) {
    Life& life = *static_cast<Life*>(data);
    if (life.tasks_.fetch_sub(1) != 1) return;
    ShadowOwner& self = life.shadow_;
    {
      const std::lock_guard lock(self.mutex_);
      const auto found = self.lives_.find(life.begin_);
      if (found != self.lives_.end() && found->second == &life) self.lives_.erase(found);
    }
    delete &life;
  }

  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Life*> lives_;
  std::atomic<int> violations_{0};
};

}  // namespace gantry::testing
