#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <gantry/collectives/comm.hpp>

#include "collectives/multi_gpu/coalesce.hpp"

// Note [Coalesced operations]
// broadcast_coalesced and reduce_add_coalesced do not pack: kernels read the tensors and write the
// outputs in place, and take their addresses as parameters. So a call costs one launch and two
// stream waits per device, for up to about a thousand tensors.
namespace gantry::comm {

// Throws InvalidArgument for buffers of 0 bytes.
void require_buffer(std::string_view op, const CoalesceOptions& options);

// The buckets of at most `options.buffer_bytes` for `tensors`.
std::vector<PaddedBucket> padded_buckets(std::span<const Tensor> tensors,
                                         const CoalesceOptions& options);

// The address of element `offset` of `flat`, which is contiguous.
std::byte* place_in(const Tensor& flat, std::int64_t offset);

// Returns the addresses of the tensors' contiguous elements; `temporaries` owns contiguous copies
// of strided ones.
std::vector<const void*> dense_addresses(std::span<const Tensor> tensors,
                                         std::vector<Tensor>& temporaries);

// True if new memory on all devices is peer-accessible.
bool is_new_memory_open(std::span<const Device> devices);

}  // namespace gantry::comm
