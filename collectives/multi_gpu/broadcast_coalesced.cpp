// Note [Coalesced operations]
#include <fmt/format.h>

#include <gantry/collectives/comm.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/multi_gpu/checks.hpp"
#include "collectives/multi_gpu/coalesced_operands.hpp"
#include "collectives/multi_gpu/multicast.hpp"
#include "collectives/multi_gpu/named_call.hpp"
#include "collectives/nccl/clique.hpp"
#include "collectives/peers/reach.hpp"

namespace gantry::comm {

namespace {

// A broadcast_coalesced between devices that reach each other.
struct CoalescedBroadcast {
  const std::vector<Tensor>& tensors;
  Device source;
  std::vector<Device> receivers;              // devices but the source
  std::vector<std::vector<Tensor>*> results;  // of the receivers
  std::vector<Tensor> outputs = {};           // buffers, or the results themselves
  std::vector<MulticastGroup> groups = {};

  void make_buffers(const CoalesceOptions& options, CachedOutputs& cached,
                    std::span<const void* const> addresses);
  void make_tensors(CachedOutputs& cached, std::span<const void* const> addresses);
  void run(CachedOutputs& cached, std::span<const Tensor> inputs);
};

void CoalescedBroadcast::make_buffers(const CoalesceOptions& options, CachedOutputs& cached,
                                      std::span<const void* const> addresses) {
  constexpr std::size_t kMost = kernels::kMaxMulticastCopies;
  for (const PaddedBucket& padded : padded_buckets(tensors, options)) {
    for (std::size_t first = 0; first < receivers.size(); first += kMost) {
      MulticastGroup& group = groups.emplace_back();
      std::byte* base = nullptr;
      for (std::size_t d = first; d < std::min(receivers.size(), first + kMost); ++d) {
        const Tensor flat =
            cached.make({padded.elements}, padded.bucket.dtype, Stream::current(receivers[d]));
        outputs.push_back(flat);
        view_bucket(padded, flat, tensors, *results[d]);
        auto* const data = static_cast<std::byte*>(flat.data());
        if (d == first) {
          base = data;
        } else {
          group.shifts.push_back(data - base);
        }
        if (d != first || padded.elements == 0) continue;
        group.runs.reserve(padded.offsets.size());
        for (std::size_t i = 0; i < padded.offsets.size(); ++i) {
          const std::size_t member = padded.bucket.members[i];
          group.runs.push_back(
              {addresses[member], place_in(flat, padded.offsets[i]), tensors[member].nbytes()});
        }
      }
    }
  }
}

void CoalescedBroadcast::make_tensors(CachedOutputs& cached,
                                      std::span<const void* const> addresses) {
  MulticastGroup& group = groups.emplace_back();
  group.runs.reserve(tensors.size() * receivers.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t d = 0; d < receivers.size(); ++d) {
      Tensor& made = (*results[d])[i];
      made = cached.make(tensors[i].sizes(), tensors[i].dtype(), Stream::current(receivers[d]));
      outputs.push_back(made);
      group.runs.push_back({addresses[i], made.data(), made.nbytes()});
    }
  }
}

void CoalescedBroadcast::run(CachedOutputs& cached, std::span<const Tensor> inputs) {
  std::vector<Stream> owners;
  std::vector<Device> helpers;
  for (const Device device : receivers) {
    add_stream(owners, Stream::current(device));
    if (std::find(helpers.begin(), helpers.end(), device) == helpers.end()) {
      helpers.push_back(device);
    }
  }
  if (!all_reach(helpers, outputs) || !all_reach(helpers, inputs)) helpers.clear();
  try {
    multicast(source, groups, owners, helpers, &cached);
  } catch (...) {
    std::vector<Stream> users = owners;
    users.push_back(Stream::current(source));
    keep_after_failure(outputs, users);
    keep_after_failure(inputs, users);
    throw;
  }
}

}  // namespace

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<Tensor>& tensors,
                                                     const std::vector<Device>& devices,
                                                     std::size_t buffer_bytes) {
  return broadcast_coalesced(tensors, devices, CoalesceOptions{.buffer_bytes = buffer_bytes});
}

std::vector<std::vector<Tensor>> broadcast_coalesced(const std::vector<Tensor>& tensors,
                                                     const std::vector<Device>& devices,
                                                     const CoalesceOptions& options) {
  const NamedCall named("broadcast_coalesced");
  constexpr std::string_view kOp = "broadcast_coalesced";
  const std::vector<Device> resolved = checked_devices(kOp, devices);
  require_buffer(kOp, options);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) {
      require_defined(kOp, tensors[i], fmt::format("tensor at index {}", i));
    }
    if (tensors[i].device() != resolved.front()) {
      throw DeviceMismatchError(
          fmt::format("{}: all tensors must be on devices[0] ({}), but tensor at index {} is on {}",
                      kOp, resolved.front().str(), i, tensors[i].device().str()),
          tensors[i].device().str());
    }
    bytes += tensors[i].nbytes();
  }
  std::vector<std::vector<Tensor>> result(resolved.size());
  CoalescedBroadcast call{tensors, resolved.front(), {}, {}};
  bool direct = are_open_to_peers(tensors) && is_new_memory_open(resolved);
  for (std::size_t d = 0; d < resolved.size(); ++d) {
    // A repeated devices[0] gets the inputs themselves, as in broadcast().
    if (resolved[d] == resolved[0]) {
      result[d] = tensors;
      continue;
    }
    result[d].resize(tensors.size());
    call.receivers.push_back(resolved[d]);
    call.results.push_back(&result[d]);
    direct = direct && reaches(resolved[0], resolved[d]);
  }
  if (tensors.empty() || call.receivers.empty()) return result;
  if (!direct || wants_nccl("comm::broadcast_coalesced", resolved, bytes, /*same_bits=*/false)) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<Tensor> copies = broadcast(tensors[i], resolved);
      for (std::size_t d = 0; d < resolved.size(); ++d) result[d][i] = copies[d];
    }
    return result;
  }
  std::vector<Tensor> temporaries;
  const std::vector<const void*> addresses = dense_addresses(tensors, temporaries);
  CachedOutputs cached(Stream::current(resolved[0]));
  if (options.separate_storages) {
    call.make_tensors(cached, addresses);
  } else {
    call.make_buffers(options, cached, addresses);
  }
  call.run(cached, temporaries.empty() ? std::span<const Tensor>(tensors.data(), 1)
                                       : std::span<const Tensor>(temporaries));
  return result;
}

}  // namespace gantry::comm
