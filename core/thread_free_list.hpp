// Memory of small objects that threads make and destroy all the time.
#pragma once

#include <cstddef>
#include <new>

#include "core/address_sanitizer.hpp"
#include "core/thread_end.hpp"

namespace gantry {

/// A free list of each thread for memory of one size and alignment, without a lock.
///
/// A thread keeps up to kKept pieces, from its first allocation until it ends. Memory may be freed
/// by another thread than the one that allocated it, and also while or after threads end. With
/// AddressSanitizer nothing is kept, so that it sees each use after a free.
template <std::size_t kBytes, std::size_t kAlignment>
class ThreadFreeList {
 public:
  /// Uninitialized memory. Throws: std::bad_alloc.
  static void* allocate() {
    Node* const node = list_.first;
    if (node == nullptr) return allocate_new();
    list_.first = node->next;
    ++list_.room;
    return node;
  }
  static void deallocate(void* memory) noexcept {
    if (list_.room == 0) return ::operator delete (memory, std::align_val_t{kAlignment});
    list_.first = ::new (memory) Node{list_.first};
    --list_.room;
  }

 private:
  static constexpr int kKept = kHasAddressSanitizer ? 0 : 16;

  struct Node {
    Node* next;
  };
  static_assert(kBytes >= sizeof(Node) && kAlignment >= alignof(Node));

  // Without a constructor and a destructor, which would make every access a call.
  struct List {
    Node* first;
    int room;  // for more pieces; 0 before the first allocation and after the end of the thread
    bool is_opened;
  };
  static void close() noexcept {
    list_.room = 0;
    while (list_.first != nullptr) {
      Node* const node = list_.first;
      list_.first = node->next;
      ::operator delete (node, std::align_val_t{kAlignment});
    }
  }

  [[gnu::noinline]] static void* allocate_new() {
    void* const memory = ::operator new (kBytes, std::align_val_t{kAlignment});
    if (!list_.is_opened) {
      list_.is_opened = true;
      list_.room = kKept;
      at_thread_end(close);
    }
    return memory;
  }

  static constinit inline thread_local List list_ [[gnu::tls_model("initial-exec")]]{};
};

/// The allocator of std::allocate_shared() for objects from a ThreadFreeList.
template <class T>
struct ThreadFreeListAllocator {
  using value_type = T;

  ThreadFreeListAllocator() = default;
  template <class Other>
  ThreadFreeListAllocator(const ThreadFreeListAllocator<Other>&) noexcept {}

  T* allocate(std::size_t /*one*/) { return static_cast<T*>(List::allocate()); }
  void deallocate(T* memory, std::size_t /*one*/) noexcept { List::deallocate(memory); }
  friend bool operator==(const ThreadFreeListAllocator&, const ThreadFreeListAllocator&) {
    return true;
  }

 private:
  using List =
      ThreadFreeList<sizeof(T), (alignof(T) > alignof(void*) ? alignof(T) : alignof(void*))>;
};

}  // namespace gantry
