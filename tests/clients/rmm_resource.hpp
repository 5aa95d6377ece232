#pragma once

// In front of each test file of RMM: its base resource becomes gantry's, or the one beside it.

#include <cuda_runtime_api.h>

#include <rmm/error.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>

#include <gantry/memory/cccl.hpp>

namespace gantry_client {

using GantryResource = gantry::memory::DeviceResourceThrowing<rmm::out_of_memory>;

// The concepts of CCCL 3.1 and later.
static_assert(cuda::mr::resource_with<gantry::memory::DeviceResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<GantryResource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<GantryResource, cuda::mr::host_accessible>);

}  // namespace gantry_client

namespace rmm::mr {

#ifdef GANTRY_CLIENT_BESIDE
using tested_resource = cuda_async_memory_resource;
#else
using tested_resource = gantry_client::GantryResource;
#endif

}  // namespace rmm::mr

// RMM's later headers and its tests name the base resource so: also the initial one of each device.
#define cuda_memory_resource tested_resource
