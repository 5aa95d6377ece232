#include "collectives/multi_gpu/output_cache.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/call.hpp"
#include "collectives/peers/reach.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "streams/stream_clock.hpp"
#include "streams/stream_order.hpp"
#include "tensor/impl/stride_algebra.hpp"

namespace gantry {

namespace {

constexpr std::size_t kMaxCachedOutputs = 16;
constexpr std::size_t kMaxBins = 128;

struct BinKey {
  std::size_t bytes = 0;
  int owner_device = 0;
  int writer_device = 0;
  std::uint64_t owner = 0;
  std::uint64_t writer = 0;

  friend bool operator==(const BinKey&, const BinKey&) = default;
};

// The cached outputs of one size for one pair of streams.
struct Bin {
  BinKey key;
  std::uint64_t last_use = 0;
  std::vector<Storage> ready;
};

// The output cache of one thread. Only that thread adds outputs; any thread may release them.
class OutputCache {
 public:
  OutputCache() { all_caches().add(this); }
  ~OutputCache() { all_caches().remove(this); }
  OutputCache(const OutputCache&) = delete;
  OutputCache& operator=(const OutputCache&) = delete;

  // Returns whether the key has a bin, and takes one of its outputs if there is one. Else adds an
  // empty bin: most sizes do not recur, so the first use of a size caches nothing.
  bool take(const BinKey& key, Storage& output) {
    const std::lock_guard lock(mutex_);
    Bin* const bin = find(key);
    if (bin == nullptr) {
      add_bin(key);
      return false;
    }
    if (!bin->ready.empty()) {
      output = std::move(bin->ready.back());
      bin->ready.pop_back();
    }
    return true;
  }
  void put(const BinKey& key, std::vector<Storage>& outputs) {
    const std::lock_guard lock(mutex_);
    Bin* const bin = find(key);
    // A list of many sizes may have evicted the bin.
    if (bin != nullptr && bin->ready.empty()) bin->ready = std::move(outputs);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

  // Releases the cached outputs of all threads on `device`.
  static bool release_device(int device, memory::Waiting /*waiting*/) noexcept {
    const std::lock_guard lock(all_caches().mutex);
    bool any = false;
    for (OutputCache* one : all_caches().all) any = one->release(device) || any;
    return any;
  }

 private:
  struct AllCaches {
    AllCaches() { memory::MemoryPressureCallbacks::instance().add(&OutputCache::release_device); }
    void add(OutputCache* one) {
      const std::lock_guard lock(mutex);
      all.push_back(one);
    }
    void remove(OutputCache* one) {
      const std::lock_guard lock(mutex);
      std::erase(all, one);
    }

    std::mutex mutex;
    std::vector<OutputCache*> all;
  };
  static AllCaches& all_caches() {
    static auto& instance = *new AllCaches();
    return instance;
  }

  Bin* find(const BinKey& key) {
    for (Bin& bin : all_) {
      if (bin.key == key) {
        bin.last_use = ++uses_;
        return &bin;
      }
    }
    return nullptr;
  }
  // Adds a bin. Evicts the least recently used one if there are kMaxBins.
  void add_bin(const BinKey& key) {
    Bin* slot = nullptr;
    if (all_.size() < kMaxBins) {
      slot = &all_.emplace_back();
    } else {
      slot = &*std::min_element(all_.begin(), all_.end(),
                                [](const Bin& a, const Bin& b) { return a.last_use < b.last_use; });
    }
    *slot = {key, ++uses_, {}};
  }
  bool release(int device) noexcept {
    const std::lock_guard lock(mutex_);
    bool any = false;
    for (Bin& bin : all_) {
      if (bin.key.owner_device != device) continue;
      any = any || !bin.ready.empty();
      bin.ready.clear();
    }
    return any;
  }

  std::mutex mutex_;
  std::vector<Bin> all_;
  std::uint64_t uses_ = 0;
};

OutputCache& output_cache() {
  thread_local const auto own =
      std::make_unique<OutputCache>();  // Note [Small thread-local memory]
  return *own;
}

BinKey key_of(std::size_t bytes, const Stream& owner, const Stream& writer) {
  return {bytes, owner.native().device, writer.native().device, owner.id(), writer.id()};
}

// True if the stream's properties still hold at the next call.
bool is_lasting(const Stream& stream) {
  const StreamClock& clock = StreamClock::of(stream);
  return !clock.is_external() && !clock.is_invalidated() && !driver().is_capturing(stream.native());
}

bool has_own_allocator(Device device) {
  return &memory::allocator(device) == &memory::heap_allocator() &&
         memory::active_pool(device.index) == nullptr;
}

Storage allocate_for(const Stream& owner, std::size_t bytes) {
  const Device device = owner.device();
  if (Stream::current(device) == owner) return Storage::allocate(bytes, device);
  const StreamGuard guard(owner);
  return Storage::allocate(bytes, device);
}

}  // namespace

CachedOutputs::CachedOutputs(const Stream& writer)
    : writer_(writer), is_eligible_(is_lasting(writer)) {}

Tensor CachedOutputs::make(const Shape& sizes, DType dtype, const Stream& owner) {
  const std::size_t bytes =
      static_cast<std::size_t>(detail::checked_numel("comm", sizes)) * element_size(dtype);
  const auto shaped = [&](const Storage& storage) {
    return Tensor::from_storage(storage, sizes, detail::contiguous_strides(sizes), 0, dtype);
  };
  if (owner == writer_ || bytes == 0) return shaped(allocate_for(owner, bytes));
  const std::size_t count = std::min(kMaxCachedOutputs, comm_tuning().cached_output_bytes / bytes);
  if (count >= 2 && is_eligible_ && is_lasting(owner) && has_own_allocator(owner.device())) {
    for (Reserve& reserve : reserves_) {
      if (reserve.bytes != bytes || reserve.owner != owner || reserve.storages.empty()) continue;
      const Storage storage = std::move(reserve.storages.back());
      reserve.storages.pop_back();
      return shaped(storage);
    }
    Storage output;
    const bool has_bin = output_cache().take(key_of(bytes, owner, writer_), output);
    if (output.defined()) return shaped(output);
    if (has_bin) {
      Reserve reserve{bytes, owner, std::vector<Storage>(count - 1)};
      for (Storage& storage : reserve.storages) storage = allocate_for(owner, bytes);
      reserves_.push_back(std::move(reserve));
    }
  }
  add_stream(owners_, owner);
  return shaped(allocate_for(owner, bytes));
}

void CachedOutputs::order() {
  order_behind(writer_, owners_);
  for (Reserve& reserve : reserves_)
    output_cache().put(key_of(reserve.bytes, reserve.owner, writer_), reserve.storages);
  reserves_.clear();
  owners_.clear();
}

void release_cached_outputs() { output_cache().clear(); }

}  // namespace gantry
