#include <gantry/memory/symmetric_pool.hpp>

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "memory/symmetric_heap.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {

SymmetricPool::SymmetricPool(Device device, std::size_t bytes)
    : heap_(new SymmetricHeap(require_cuda(device, "SymmetricPool"), bytes)) {}

SymmetricPool::~SymmetricPool() { SymmetricHeap::abandon(heap_); }

SymmetricPool::SymmetricPool(SymmetricPool&& other) noexcept
    : heap_(std::exchange(other.heap_, nullptr)) {}

SymmetricPool& SymmetricPool::operator=(SymmetricPool&& other) noexcept {
  SymmetricPool taken(std::move(other));
  std::swap(heap_, taken.heap_);
  return *this;
}

Buffer SymmetricPool::allocate(std::size_t bytes, const Stream& stream) {
  return Buffer(heap_->allocate(bytes, stream));
}

Buffer SymmetricPool::allocate_local(std::size_t bytes, const Stream& stream) {
  return Buffer(heap_->allocate_local(bytes, stream));
}

Allocator& SymmetricPool::allocator() const { return *heap_; }

std::size_t SymmetricPool::offset_of(const Block& block) const {
  if (block.allocator != heap_) {
    throw InvalidArgument(fmt::format(
        "SymmetricPool::offset_of: a block of this pool was expected, but got {}",
        block.allocator == nullptr
            ? std::string("a null block")
            : "one of allocator '" + block.allocator->name() + "' on " + block.device.str()));
  }
  return static_cast<std::size_t>(static_cast<std::byte*>(block.data) - heap_->base());
}

void* SymmetricPool::data_at(std::size_t offset) const {
  if (offset >= bytes()) {
    throw InvalidArgument(fmt::format(
        "SymmetricPool::data_at: an offset below {} was expected, but got {}", bytes(), offset));
  }
  return heap_->base() + offset;
}

void* SymmetricPool::base() const { return heap_->base(); }

std::size_t SymmetricPool::bytes() const { return heap_->bytes(); }

Device SymmetricPool::device() const { return Device::cuda(heap_->device()); }

int SymmetricPool::export_descriptor() const { return heap_->export_descriptor(); }

std::size_t SymmetricPool::use_count() const { return heap_->live(); }

SymmetricUsage SymmetricPool::usage() const { return heap_->usage(); }

std::uint64_t SymmetricPool::sequence() const { return heap_->sequence(); }

}  // namespace gantry::memory
