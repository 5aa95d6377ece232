// Functions that other layers register.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

namespace gantry {

/// Functions of one type, which are never removed.
///
/// Thread safety: every member may be called from any thread, also by the functions.
template <class Function>
class Callbacks {
 public:
  Callbacks() = default;
  ~Callbacks() {
    for (Node* node = first_; node != nullptr;) delete std::exchange(node, node->next);
  }
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  /// Adds a function behind the others. Throws: std::bad_alloc; nothing is added then.
  void add(Function function) {
    Node* const added = new Node{std::move(function)};
    const std::lock_guard lock(mutex_);
    (last_ == nullptr ? first_ : last_->next).store(added, std::memory_order_release);
    last_ = added;
  }
  /// Calls `visit(function)` for each function, in the order of add(). Takes no lock; a function
  /// that is added meanwhile may be missed.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Node* node = first_.load(std::memory_order_acquire); node != nullptr;
         node = node->next.load(std::memory_order_acquire)) {
      visit(node->function);
    }
  }

 private:
  struct Node {
    const Function function;
    std::atomic<Node*> next{nullptr};
  };

  std::mutex mutex_;  // guards `last_`
  std::atomic<Node*> first_{nullptr};
  Node* last_ = nullptr;
};

}  // namespace gantry
