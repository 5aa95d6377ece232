#include "device/host_pages.hpp"

#include <unistd.h>

#include <climits>
#include <new>

#include <gantry/extend/driver.hpp>

#include "core/rounding.hpp"
#include "machine/topology/node_pages.hpp"

namespace gantry {
namespace {

constexpr std::size_t kAlignment = 64;

HostPages allocate_registered(std::size_t bytes, const HostPlacement& placement) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  HostPages pages{
      .data = nullptr, .bytes = round_up(bytes, page), .source = HostSource::registered};
  const int threads = placement.threads != 0 ? placement.threads : machine::most_page_threads();
  std::byte* const data = machine::map_node_pages(pages.bytes, placement.node, threads);
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
      return allocate_registered(bytes, placement);
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

}  // namespace gantry
