#include "compat/nccl/memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry::nccl_api {

namespace {

// NCCL_WIN_REQUIRED_ALIGNMENT: programs register whole multiples.
constexpr std::size_t kAlignment = 4096;

// The allocations of this process. Never destroyed: the program may free memory at its exit.
struct Allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, Tensor> by_address;

  static Allocations& all() {
    static auto* const allocations = new Allocations;
    return *allocations;
  }
};

std::uintptr_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

void* allocate(std::size_t bytes) {
  const std::size_t rounded =
      (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  Tensor memory =
      empty({static_cast<std::int64_t>(rounded)}, {.dtype = DType::u8, .device = current_device()});
  void* const data = memory.data();
  Allocations& all = Allocations::all();
  const std::lock_guard lock(all.mutex);
  all.by_address.emplace(address_of(data), std::move(memory));
  return data;
}

void deallocate(void* data) {
  if (data == nullptr) return;
  Allocations& all = Allocations::all();
  Tensor memory;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_address.find(address_of(data));
    if (found == all.by_address.end()) {
      throw InvalidArgument("expected memory of ncclMemAlloc, but got another address");
    }
    memory = std::move(found->second);
    all.by_address.erase(found);
  }
  // Work of any stream may use the memory, as for cudaFree().
  synchronize(memory.device());
}

std::optional<Tensor> allocation_of(const void* data, std::size_t bytes) {
  Allocations& all = Allocations::all();
  const std::lock_guard lock(all.mutex);
  auto after = all.by_address.upper_bound(address_of(data));
  if (after == all.by_address.begin()) return std::nullopt;
  const auto& [begin, memory] = *--after;
  if (address_of(data) + bytes > begin + memory.nbytes()) return std::nullopt;
  return memory;
}

}  // namespace gantry::nccl_api
