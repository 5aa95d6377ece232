// gantry's allocator; GANTRY_ALLOC_CONF picks the backend. With --raw as the first argument through
// allocate_raw() and deallocate_raw(), else through allocate() and deallocate() with the block as
// the handle.

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "benchmarks/alloc/peer.hpp"

namespace {

using namespace gantry;

const Device kDevice = Device::cuda(0);

// The parts that both ways share.
class Limits {
 public:
  void begin(std::uint64_t limit_bytes) {
    memory::empty_cache();
    const auto total = static_cast<double>(memory::mem_get_info(kDevice).total);
    memory::set_fraction(
        limit_bytes == 0 ? 1.0 : std::min(1.0, static_cast<double>(limit_bytes) / total), kDevice);
    memory::reset_peak_stats(kDevice);
  }
  std::uint64_t peak_reserved() { return memory::max_reserved(kDevice); }
};

class BlockPeer : public Limits {
 public:
  using Handle = memory::Block;
  Handle allocate(std::size_t bytes) {
    try {
      return allocator_.allocate(stream_, bytes);
    } catch (const OutOfMemoryError&) {
      return {};
    }
  }
  void free(Handle& handle, std::size_t) { allocator_.deallocate(handle); }
  static bool is_empty(const Handle& handle) { return handle.allocator == nullptr; }

 private:
  memory::Allocator& allocator_ = memory::allocator(kDevice);
  Stream stream_ = Stream::default_stream(kDevice);
};

class RawPeer : public Limits {
 public:
  using Handle = void*;
  Handle allocate(std::size_t bytes) {
    try {
      return memory::allocate_raw(bytes, stream_);
    } catch (const OutOfMemoryError&) {
      return nullptr;
    }
  }
  void free(Handle handle, std::size_t) { memory::deallocate_raw(handle); }
  static bool is_empty(Handle handle) { return handle == nullptr; }

 private:
  Stream stream_ = Stream::default_stream(kDevice);
};

}  // namespace

int main(int argc, char** argv) {
  if (!is_available()) {
    std::fprintf(stderr, "%s: no device\n", argv[0]);
    return 1;
  }
  try {
    if (argc > 1 && std::strcmp(argv[1], "--raw") == 0) {
      RawPeer peer;
      return benchmarks::peer_main(argc - 1, argv + 1, peer);
    }
    BlockPeer peer;
    return benchmarks::peer_main(argc, argv, peer);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
