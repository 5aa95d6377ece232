#include "memory/pinned/host_pages.hpp"

#include <unistd.h>

#include <climits>
#include <new>

#include <gantry/extend/driver.hpp>

#include "core/rounding.hpp"
#include "machine/topology/node_pages.hpp"
#include "memory/policy/config.hpp"

namespace gantry::memory {
namespace {

constexpr std::size_t kAlignment = 64;
// From this size on several threads are faster than the driver's one.
constexpr std::size_t kParallelBytes = std::size_t{64} << 20;

int most_threads() {
  const int chosen = alloc_config().pinned_threads;
  return chosen != 0 ? chosen : machine::most_page_threads();
}

HostPages allocate_registered(std::size_t bytes, int node) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  HostPages pages{
      .data = nullptr, .bytes = round_up(bytes, page), .source = HostSource::registered};
  std::byte* const data = machine::map_node_pages(pages.bytes, node, most_threads());
  if (data == nullptr) return pages;
  try {
    if (driver().register_host(data, pages.bytes)) pages.data = data;
  } catch (...) {
    machine::unmap_node_pages(data, pages.bytes);
    throw;
  }
  if (pages.data == nullptr) machine::unmap_node_pages(data, pages.bytes);
  return pages;
}

}  // namespace

HostPlacement host_placement(int node, bool several_nodes, std::size_t bytes) {
  if (platform() == Platform::none) return {.source = HostSource::ordinary};
  const bool worth_it =
      platform() == Platform::cuda && (bytes >= kParallelBytes || (several_nodes && node >= 0));
  const bool registers = alloc_config().pinned_register.value_or(worth_it);
  return {.source = registers ? HostSource::registered : HostSource::driver, .node = node};
}

bool registers_host_pages() {
  if (platform() == Platform::none) return false;
  return alloc_config().pinned_register.value_or(platform() == Platform::cuda);
}

int host_register_threads() { return registers_host_pages() ? most_threads() : 1; }

HostPages allocate_host_pages(std::size_t bytes, HostPlacement placement) {
  HostPages pages{.data = nullptr, .bytes = bytes, .source = placement.source};
  if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) return pages;
  switch (placement.source) {
    case HostSource::ordinary:
      pages.data = static_cast<std::byte*>(
          ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow));
      break;
    case HostSource::driver:
      pages.data = static_cast<std::byte*>(driver().allocate_pinned(bytes));
      break;
    case HostSource::registered:
      return allocate_registered(bytes, placement.node);
  }
  return pages;
}

void release_host_pages(const HostPages& pages) {
  switch (pages.source) {
    case HostSource::ordinary:
      ::operator delete (pages.data, std::align_val_t{kAlignment});
      return;
    case HostSource::driver:
      driver().deallocate_pinned(pages.data);
      return;
    case HostSource::registered:
      driver().unregister_host(pages.data);
      machine::unmap_node_pages(pages.data, pages.bytes);
      return;
  }
}

}  // namespace gantry::memory
