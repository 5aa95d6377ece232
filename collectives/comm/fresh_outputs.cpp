#include "collectives/comm/fresh_outputs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include <gantry/device/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/comm/tuning.hpp"
#include "collectives/peers/reach.hpp"
#include "memory/backends.hpp"
#include "memory/heap/memory_pressure.hpp"
#include "memory/heap_allocator.hpp"
#include "streams/stream_clock.hpp"
#include "tensor/stride_algebra.hpp"

namespace gantry {

namespace {

constexpr std::size_t kMostSpares = 16;
constexpr std::size_t kMostShelves = 128;

struct ShelfKey {
  std::size_t bytes = 0;
  int home_device = 0;
  int writer_device = 0;
  std::uint64_t home = 0;
  std::uint64_t writer = 0;

  friend bool operator==(const ShelfKey&, const ShelfKey&) = default;
};

// Spares of one size for one pair of streams.
struct Shelf {
  ShelfKey key;
  std::uint64_t last_use = 0;
  std::vector<Storage> ready;
};

// One thread's. Only that thread puts spares in; any may take all of them away.
class Shelves {
 public:
  Shelves() { everybody().add(this); }
  ~Shelves() { everybody().remove(this); }
  Shelves(const Shelves&) = delete;
  Shelves& operator=(const Shelves&) = delete;

  // True if there is a shelf, else opens it: most sizes never come again. Sets `spare` to one of
  // its spares, if it has any.
  bool take(const ShelfKey& key, Storage& spare) {
    const std::lock_guard lock(mutex_);
    Shelf* const shelf = find(key);
    if (shelf == nullptr) {
      open(key);
      return false;
    }
    if (!shelf->ready.empty()) {
      spare = std::move(shelf->ready.back());
      shelf->ready.pop_back();
    }
    return true;
  }
  void put(const ShelfKey& key, std::vector<Storage>& spares) {
    const std::lock_guard lock(mutex_);
    Shelf* const shelf = find(key);
    // A list of many sizes may have pushed it out.
    if (shelf != nullptr && shelf->ready.empty()) shelf->ready = std::move(spares);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

  // Frees the spares of all threads on `device`.
  static bool give_back(int device) noexcept {
    const std::lock_guard lock(everybody().mutex);
    bool any = false;
    for (Shelves* one : everybody().all) any = one->drop(device) || any;
    return any;
  }

 private:
  struct Everybody {
    Everybody() { memory::add_memory_pressure_callback(&Shelves::give_back); }
    void add(Shelves* one) {
      const std::lock_guard lock(mutex);
      all.push_back(one);
    }
    void remove(Shelves* one) {
      const std::lock_guard lock(mutex);
      std::erase(all, one);
    }

    std::mutex mutex;
    std::vector<Shelves*> all;
  };
  static Everybody& everybody() {
    static auto& instance = *new Everybody();
    return instance;
  }

  Shelf* find(const ShelfKey& key) {
    for (Shelf& shelf : all_) {
      if (shelf.key == key) {
        shelf.last_use = ++uses_;
        return &shelf;
      }
    }
    return nullptr;
  }
  // Makes a shelf in place of the one that was not used for the longest time.
  void open(const ShelfKey& key) {
    Shelf* place = nullptr;
    if (all_.size() < kMostShelves) {
      place = &all_.emplace_back();
    } else {
      place = &*std::min_element(all_.begin(), all_.end(), [](const Shelf& a, const Shelf& b) {
        return a.last_use < b.last_use;
      });
    }
    *place = {key, ++uses_, {}};
  }
  bool drop(int device) noexcept {
    const std::lock_guard lock(mutex_);
    bool any = false;
    for (Shelf& shelf : all_) {
      if (shelf.key.home_device != device) continue;
      any = any || !shelf.ready.empty();
      shelf.ready.clear();
    }
    return any;
  }

  std::mutex mutex_;
  std::vector<Shelf> all_;
  std::uint64_t uses_ = 0;
};

Shelves& shelves() {
  thread_local const auto own = std::make_unique<Shelves>();  // Note [Small thread-local memory]
  return *own;
}

ShelfKey key_of(std::size_t bytes, const Stream& home, const Stream& writer) {
  return {bytes, home.native().device, writer.native().device, home.id(), writer.id()};
}

// True if what is known about the stream now still holds at the next call.
bool is_lasting(const Stream& stream) {
  const StreamClock& clock = StreamClock::of(stream);
  return !clock.is_external() && !clock.is_invalidated() && !driver().is_capturing(stream.native());
}

bool has_own_allocator(Device device) {
  return &memory::allocator(device) == &memory::heap_allocator() &&
         memory::active_pool(device.index) == nullptr;
}

Storage allocate_for(const Stream& home, std::size_t bytes) {
  const Device device = home.device();
  if (Stream::current(device) == home) return Storage::allocate(bytes, device);
  const StreamGuard guard(home);
  return Storage::allocate(bytes, device);
}

}  // namespace

FreshOutputs::FreshOutputs(const Stream& writer)
    : writer_(writer), is_eligible_(is_lasting(writer)) {}

Tensor FreshOutputs::make(const Shape& sizes, DType dtype, const Stream& home) {
  const std::size_t bytes =
      static_cast<std::size_t>(detail::checked_numel("comm", sizes)) * element_size(dtype);
  const auto shaped = [&](const Storage& storage) {
    return Tensor::from_storage(storage, sizes, detail::contiguous_strides(sizes), 0, dtype);
  };
  if (home == writer_ || bytes == 0) return shaped(allocate_for(home, bytes));
  const std::size_t spares = std::min(kMostSpares, comm_tuning().unmapped_bytes / bytes);
  if (spares < 2 || !is_eligible_ || !is_lasting(home) || !has_own_allocator(home.device())) {
    add_stream(homes_, home);
    return shaped(allocate_for(home, bytes));
  }
  for (Kept& kept : kept_) {
    if (kept.bytes != bytes || kept.home != home || kept.storages.empty()) continue;
    const Storage storage = std::move(kept.storages.back());
    kept.storages.pop_back();
    return shaped(storage);
  }
  Storage spare;
  const bool came_before = shelves().take(key_of(bytes, home, writer_), spare);
  if (spare.defined()) return shaped(spare);
  if (!came_before) {
    add_stream(homes_, home);
    return shaped(allocate_for(home, bytes));
  }
  add_stream(homes_, home);
  Storage own = allocate_for(home, bytes);
  Kept kept{bytes, home, {}};
  kept.storages.reserve(spares - 1);
  while (kept.storages.size() + 1 < spares) kept.storages.push_back(allocate_for(home, bytes));
  kept_.push_back(std::move(kept));
  return shaped(own);
}

void FreshOutputs::order() {
  order_behind(writer_, homes_);
  for (Kept& kept : kept_) shelves().put(key_of(kept.bytes, kept.home, writer_), kept.storages);
  kept_.clear();
  homes_.clear();
}

void release_spare_outputs() { shelves().clear(); }

}  // namespace gantry
