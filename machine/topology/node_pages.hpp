// Host memory in pages of its own, near a NUMA node.
#pragma once

#include <cstddef>

namespace gantry::machine {

/// The most threads of map_node_pages(), unless the caller chooses: the CPUs of the machine, up to
/// 16.
[[nodiscard]] int most_page_threads() noexcept;

/// Maps `bytes`, whole pages, which the kernel gives from `node` as far as it can; -1: from any
/// node. All of them are there when it returns. Up to `threads` threads fault them in, since one
/// takes seconds for some GiB. Child processes share them: with a private mapping, the parent would
/// get other pages by its first write after a fork. nullptr if the system has not enough.
[[nodiscard]] std::byte* map_node_pages(std::size_t bytes, int node, int threads) noexcept;
void unmap_node_pages(std::byte* data, std::size_t bytes) noexcept;

}  // namespace gantry::machine
