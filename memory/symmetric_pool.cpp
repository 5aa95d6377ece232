#include <gantry/memory/symmetric_pool.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>

#include <gantry/core/error.hpp>

#include "memory/symmetric_heap.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {

void SymmetricPool::AbandonHeap::operator()(SymmetricHeap* heap) const noexcept {
  SymmetricHeap::abandon(heap);
}

SymmetricPool::SymmetricPool(Device device, std::size_t bytes)
    : heap_(std::unique_ptr<SymmetricHeap, AbandonHeap>(
          new SymmetricHeap(require_cuda(device, "SymmetricPool"), bytes))) {}

Buffer SymmetricPool::allocate(std::size_t bytes, const Stream& stream) {
  return Buffer(heap_.of("SymmetricPool::allocate").allocate(bytes, stream));
}

Buffer SymmetricPool::allocate_local(std::size_t bytes, const Stream& stream) {
  return Buffer(heap_.of("SymmetricPool::allocate_local").allocate_local(bytes, stream));
}

Allocator& SymmetricPool::allocator() const { return heap_.of("SymmetricPool::allocator"); }

std::size_t SymmetricPool::offset_of(const Block& block) const {
  const SymmetricHeap& heap = heap_.of("SymmetricPool::offset_of");
  if (block.allocator != &heap) {
    throw InvalidArgument(fmt::format(
        "SymmetricPool::offset_of: a block of this pool was expected, but got {}",
        block.allocator == nullptr
            ? std::string("a null block")
            : "one of allocator '" + block.allocator->name() + "' on " + block.device.str()));
  }
  return static_cast<std::size_t>(static_cast<std::byte*>(block.data) - heap.base());
}

void* SymmetricPool::data_at(std::size_t offset) const {
  const SymmetricHeap& heap = heap_.of("SymmetricPool::data_at");
  if (offset >= heap.bytes()) {
    throw InvalidArgument(
        fmt::format("SymmetricPool::data_at: an offset below {} was expected, but got {}",
                    heap.bytes(), offset));
  }
  return heap.base() + offset;
}

void* SymmetricPool::base() const { return heap_.of("SymmetricPool::base").base(); }

std::size_t SymmetricPool::bytes() const { return heap_.of("SymmetricPool::bytes").bytes(); }

Device SymmetricPool::device() const {
  return Device::cuda(heap_.of("SymmetricPool::device").device());
}

int SymmetricPool::export_descriptor() const {
  return heap_.of("SymmetricPool::export_descriptor").export_descriptor();
}

std::size_t SymmetricPool::use_count() const { return heap_.of("SymmetricPool::use_count").live(); }

SymmetricUsage SymmetricPool::usage() const { return heap_.of("SymmetricPool::usage").usage(); }

std::uint64_t SymmetricPool::sequence() const {
  return heap_.of("SymmetricPool::sequence").sequence();
}

}  // namespace gantry::memory
