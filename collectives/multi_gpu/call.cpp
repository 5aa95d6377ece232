#include "collectives/multi_gpu/call.hpp"

#include <algorithm>

#include <gantry/memory/caching_allocator.hpp>

#include "collectives/peers/reach.hpp"
#include "streams/capture.hpp"

namespace gantry {

CommTuning& comm_tuning() {
  static CommTuning tuning;
  return tuning;
}

MultiDeviceCall::MultiDeviceCall(const Stream& root) {
  reserve(8);
  streams_.push_back(root);
}

MultiDeviceCall::MultiDeviceCall(Device root, Operands operands) {
  std::size_t count = 0;
  for (const auto& tensors : operands) count += tensors.size();
  reserve(count);
  streams_.push_back(Stream::current(root));
  for (const auto& tensors : operands) {
    for (const Tensor& operand : tensors) add(operand);
  }
}

MultiDeviceCall::MultiDeviceCall(Device root, std::span<const Device> devices) {
  const auto is_open = [](Device device) { return memory::allocator(device).is_peer_accessible(); };
  reserve(devices.size());
  streams_.push_back(Stream::current(root));
  is_open_ = is_open(root);
  for (const Device device : devices) add(device, is_open(device));
}

void MultiDeviceCall::add(const Tensor& operand) {
  add(operand.device(), operand.storage().is_peer_accessible());
}

bool MultiDeviceCall::is_mesh() const {
  if (!is_mesh_) {
    const auto reaches_all = [&](const Stream& from) {
      return std::ranges::all_of(
          streams_, [&](const Stream& to) { return reaches(from.device(), to.device()); });
    };
    is_mesh_ = streams_.size() == 1 || (is_open_ && std::ranges::all_of(streams_, reaches_all));
  }
  return *is_mesh_;
}

std::span<const Stream> MultiDeviceCall::helpers(std::size_t bytes) const {
  if (bytes < comm_tuning().helper_bytes || streams_.size() < 3 || !is_mesh()) return {};
  return others();
}

void MultiDeviceCall::join_capture() const {
  if (is_captured(root().native())) return;
  for (const Stream& stream : others()) {
    if (is_captured(stream.native())) return root().wait(stream);
  }
}

void MultiDeviceCall::reserve(std::size_t operands) {
  streams_.reserve(std::min<std::size_t>(operands, 8) + 1);
  devices_.reserve(operands + 1);
}

void MultiDeviceCall::add(Device device, bool is_open) {
  const Device root_device = root().device();
  devices_.push_back(device);
  is_open_ = is_open_ && is_open;
  is_direct_ = is_direct_ && (device == root_device || (is_open && reaches(root_device, device)));
  is_mesh_.reset();
  add_stream(streams_, Stream::current(device));
}

void MultiDeviceCall::keep(std::span<const Tensor> tensors) const noexcept {
  try {
    for (const Tensor& tensor : tensors) {
      for (const Stream& stream : streams_) tensor.record_stream(stream);
    }
  } catch (...) {
    // The first exception is the one to report.
  }
}

std::span<const Tensor> contiguous_of(std::span<const Tensor> tensors,
                                      std::vector<Tensor>& copies) {
  if (std::ranges::all_of(tensors, &Tensor::is_contiguous)) return tensors;
  copies.reserve(tensors.size());
  for (const Tensor& tensor : tensors) copies.push_back(tensor.contiguous());
  return copies;
}

std::byte* element(const Tensor& tensor, std::int64_t index) {
  return static_cast<std::byte*>(tensor.data()) +
         static_cast<std::size_t>(index) * tensor.element_size();
}

}  // namespace gantry
