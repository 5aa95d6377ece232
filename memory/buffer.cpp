#include <gantry/memory/buffer.hpp>

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "memory/policy/size_policy.hpp"
#include "streams/capture.hpp"
#include "streams/profiling/call_event.hpp"

namespace gantry::memory {
namespace {

// Copies in the order of the stream. The block may be freed as soon as this returns.
void copy(std::string_view op, void* dst, const void* src, std::size_t bytes, const Block& block,
          const void* host, const std::optional<Stream>& stream) {
  if (bytes > block.bytes) {
    throw InvalidArgument(
        fmt::format("{}: expected at most {} bytes of the host, the size of the buffer, but got {}",
                    op, block.bytes, bytes));
  }
  if (stream && block.device.is_cuda() && stream->device() != block.device) {
    throw InvalidArgument(fmt::format("{}: expected a stream of {}, but got one of {}", op,
                                      block.device.str(), stream->device().str()));
  }
  const trace::CallEvent event(op.substr(op.rfind(':') + 1));
  if (bytes == 0) return;
  if (block.device.is_cpu()) {
    std::memcpy(dst, src, bytes);
    return;
  }
  const Stream used = stream ? *stream : Stream::current(block.device);
  if (is_captured(used.native()) && driver().pointer_info(host).kind == PointerKind::unregistered) {
    throw CaptureError(
        fmt::format("{}: expected page-locked host memory in the capture of a graph, but got "
                    "pageable memory, which each replay would use again; memory::pinned() makes "
                    "page-locked memory",
                    op),
        used.device().str());
  }
  driver().copy(dst, src, bytes, used.native());
  if (block.allocator != nullptr) block.allocator->record_use(block, used);
}

}  // namespace

// Until the process ends; destructors of static objects may still free.
void Buffer::keep_alive(std::shared_ptr<Allocator> owner) noexcept {
  static auto& mutex = *new std::mutex();
  static auto& owners = *new std::set<std::shared_ptr<Allocator>>();
  const std::lock_guard lock(mutex);
  try {
    owners.insert(owner);
  } catch (const std::bad_alloc&) {
    alignas(std::shared_ptr<Allocator>) static std::byte unowned[sizeof owner];
    ::new (unowned) std::shared_ptr<Allocator>(std::move(owner));  // leaks it
  }
}

void Buffer::check_elements(std::size_t size, std::size_t alignment) const {
  if (block_.bytes % size != 0) {
    throw InvalidArgument(
        fmt::format("Buffer::as: expected a size that is a multiple of {} bytes, but got {}", size,
                    block_.bytes));
  }
  if (padding_of(block_.data, alignment) != 0) {
    throw InvalidArgument(
        fmt::format("Buffer::as: expected memory that is aligned to {} bytes, but got {}",
                    alignment, block_.data));
  }
}

void Buffer::copy_from_host(const void* host, std::size_t bytes,
                            const std::optional<Stream>& stream) {
  copy("Buffer::copy_from", block_.data, host, bytes, block_, host, stream);
}

void Buffer::copy_to_host(void* host, std::size_t bytes,
                          const std::optional<Stream>& stream) const {
  copy("Buffer::copy_to", host, block_.data, bytes, block_, host, stream);
}

}  // namespace gantry::memory
