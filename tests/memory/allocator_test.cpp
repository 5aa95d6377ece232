#include <gantry/memory/allocator.hpp>

#include <gtest/gtest.h>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "memory/backends.hpp"
#include "tests/memory/allocator_contract.hpp"

namespace gantry::testing {

INSTANTIATE_TEST_SUITE_P(
    Memory, AllocatorContract,
    ::testing::Values(AllocatorProvider{"vmm",
                                        []() -> memory::Allocator& {
                                          return memory::allocator(Device::cuda(0));
                                        },
                                        Device::cuda(0), true},
                      AllocatorProvider{"native",
                                        []() -> memory::Allocator& {
                                          static auto& instance =
                                              *memory::make_allocator("native", {}).release();
                                          return instance;
                                        },
                                        Device::cuda(0), true},
                      AllocatorProvider{"pinned", memory::pinned_allocator, Device::cpu(), true},
                      AllocatorProvider{"cpu", memory::cpu_allocator, Device::cpu(), false}),
    [](const auto& info) { return info.param.label; });

}  // namespace gantry::testing
