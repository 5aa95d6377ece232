#include <gantry/memory/pinned_allocator.hpp>

#include <fmt/format.h>

#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <gantry/core/error.hpp>

#include "memory/oom_report.hpp"
#include "memory/poison.hpp"
#include "memory/size_policy.hpp"
#include "memory/stream_uses.hpp"

namespace gantry::memory {
namespace {

constexpr std::size_t kAlignment = 64;

// Sizes of cached blocks: powers of two up to 1 MiB, above that eight steps between two powers.
std::size_t pinned_class(std::size_t bytes) {
  if (bytes <= kBlockGrain) return kBlockGrain;
  if (bytes <= kSmallBlockLimit) return std::bit_ceil(bytes);
  return round_up(bytes, std::bit_floor(bytes) / 8);
}

struct PinnedNode : StreamUses {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool page_locked = false;
  bool live = false;
  PinnedNode* next = nullptr;
};

class PinnedAllocator final : public Allocator {
 public:
  [[nodiscard]] Block allocate(std::size_t bytes, const Stream& /*stream*/) override {
    return allocate(bytes);
  }
  [[nodiscard]] Block allocate(std::size_t bytes);
  void deallocate(Block& block) noexcept override;
  void record_stream(const Block& block, const Stream& stream) override;
  void empty_cache(Device device) override;
  [[nodiscard]] std::string name() const override { return "pinned"; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  PinnedNode* pop(std::size_t size);
  void push(PinnedNode& node);
  PinnedNode* make(std::size_t size);
  void poll_pending();
  void wait_for_pending(Lock& lock);
  void release_all();
  PinnedNode& find_memory(Lock& lock, std::size_t size, std::size_t bytes);

  std::mutex mutex_;
  std::deque<PinnedNode> nodes_;
  PinnedNode* blank_ = nullptr;              ///< nodes without memory
  std::map<std::size_t, PinnedNode*> free_;  ///< by size, linked through next
  PendingFrees pending_;
};

Block PinnedAllocator::allocate(std::size_t bytes) {
  // A hit asks the driver nothing, so it would not notice; driver() throws.
  if (in_bad_fork()) static_cast<void>(driver());
  Block block{.data = nullptr,
              .bytes = bytes,
              .device = Device::cpu(),
              .allocator = nullptr,
              .handle = nullptr};
  if (bytes == 0) return block;
  const std::size_t size = pinned_class(bytes);
  Lock lock(mutex_);
  PinnedNode* node = pop(size);
  if (node == nullptr) node = &find_memory(lock, size, bytes);
  node->live = true;
  unpoison_now(node->data, bytes);
  block.data = node->data;
  block.allocator = this;
  block.handle = node;
  return block;
}

void PinnedAllocator::deallocate(Block& block) noexcept {
  if (block.handle != nullptr && !in_bad_fork()) {
    const Lock lock(mutex_);
    auto& node = *static_cast<PinnedNode*>(block.handle);
    if (std::exchange(node.live, false) && !pending_.defer(node)) push(node);
  }
  block = {};
}

void PinnedAllocator::record_stream(const Block& block, const Stream& stream) {
  if (block.handle == nullptr) return;
  const Lock lock(mutex_);
  auto& node = *static_cast<PinnedNode*>(block.handle);
  if (node.live) node.add(stream.native());
}

void PinnedAllocator::empty_cache(Device /*device*/) {
  Lock lock(mutex_);
  wait_for_pending(lock);
  release_all();
}

PinnedNode* PinnedAllocator::pop(std::size_t size) {
  const auto found = free_.find(size);
  if (found == free_.end() || found->second == nullptr) return nullptr;
  PinnedNode* node = found->second;
  found->second = std::exchange(node->next, nullptr);
  return node;
}

// The list's head is there since the block was made, so nothing is allocated here.
void PinnedAllocator::push(PinnedNode& node) {
  poison_now(node.data, node.bytes);
  PinnedNode*& head = free_[node.bytes];
  node.next = std::exchange(head, &node);
}

// A block that nobody has used yet; nullptr if the host has no memory left.
PinnedNode* PinnedAllocator::make(std::size_t size) {
  free_.try_emplace(size, nullptr);
  if (blank_ == nullptr) blank_ = &nodes_.emplace_back();
  const bool page_locked = platform() != Platform::none;
  void* data = page_locked ? driver().allocate_pinned(size)
                           : ::operator new (size, std::align_val_t{kAlignment}, std::nothrow);
  if (data == nullptr) return nullptr;
  PinnedNode& node = *std::exchange(blank_, blank_->next);
  node.next = nullptr;
  node.data = data;
  node.bytes = size;
  node.page_locked = page_locked;
  poison_now(data, size);
  return &node;
}

void PinnedAllocator::poll_pending() {
  pending_.poll([this](StreamUses& block) { push(static_cast<PinnedNode&>(block)); });
}

void PinnedAllocator::wait_for_pending(Lock& lock) {
  const PendingFrees::Waits waits = pending_.waits();
  if (waits.empty()) return;
  lock.unlock();
  waits.synchronize();
  lock.lock();
  poll_pending();
}

void PinnedAllocator::release_all() {
  for (auto& [size, head] : free_) {
    while (head != nullptr) {
      PinnedNode& node = *head;
      unpoison_now(node.data, node.bytes);
      if (node.page_locked) {
        driver().deallocate_pinned(node.data);
      } else {
        ::operator delete (node.data, std::align_val_t{kAlignment});
      }
      head = node.next;
      node.data = nullptr;
      node.next = std::exchange(blank_, &node);
    }
  }
}

PinnedNode& PinnedAllocator::find_memory(Lock& lock, std::size_t size, std::size_t bytes) {
  if (!pending_.empty()) {
    poll_pending();
    if (PinnedNode* node = pop(size)) return *node;
  }
  if (PinnedNode* node = make(size)) return *node;
  wait_for_pending(lock);
  if (PinnedNode* node = pop(size)) return *node;
  release_all();
  if (PinnedNode* node = make(size)) return *node;
  MemoryBreakdown breakdown;
  breakdown.requested = signed_bytes(size);
  throw OutOfMemoryError(fmt::format("Page-locked host memory is exhausted. Tried to allocate {}.",
                                     format_bytes(signed_bytes(bytes))),
                         breakdown, "cpu");
}

PinnedAllocator& instance() {
  static auto& allocator = *new PinnedAllocator();
  return allocator;
}

}  // namespace

Allocator& pinned_allocator() { return instance(); }

Buffer pinned(std::size_t bytes) { return Buffer(instance().allocate(bytes)); }

bool is_pinned(const void* data) {
  if (data == nullptr || !is_initialized()) return false;
  return driver().pointer_info(data).kind == PointerKind::pinned;
}

}  // namespace gantry::memory
