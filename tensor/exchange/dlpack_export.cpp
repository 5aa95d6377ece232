#include "tensor/exchange/dlpack_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "tensor/check.hpp"

namespace gantry {

namespace {

using dlpack::MemoryKind;

static_assert(sizeof(dlpack::Array) == 48 && sizeof(dlpack::Managed) == 64 &&
                  sizeof(dlpack::ManagedVersioned) == 80,
              "the layout of DLPack on 64-bit machines");

// What one export owns.
template <class Fields>
struct Exported {
  Fields fields{};  // first: the consumer has its address
  Tensor tensor;
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::int64_t, kMaxDims> strides{};
};

template <class Handle>
using FieldsOf = std::remove_reference_t<decltype(dlpack::fields(std::declval<Handle&>()))>;

template <class Handle>
void delete_exported(Handle* handle) {
  delete static_cast<Exported<FieldsOf<Handle>>*>(dlpack::fields(*handle).manager_ctx);
}

template <class Handle>
Tensor tensor_of(const FieldsOf<Handle>& fields) {
  if (fields.deleter != &delete_exported<Handle>) return {};
  return static_cast<const Exported<FieldsOf<Handle>>*>(fields.manager_ctx)->tensor;
}

dlpack::Place place_of(const Tensor& tensor, const ToDlpackOptions& how) {
  if (tensor.is_cpu()) {
    return {how.cuda_host && tensor.is_pinned() ? MemoryKind::cuda_host : MemoryKind::cpu, 0};
  }
  const bool is_simulated = platform() == Platform::simulated;
  return {is_simulated ? MemoryKind::extension : MemoryKind::cuda, tensor.device().index};
}

void check_consumer(Device device, const std::optional<Stream>& consumer) {
  if (!consumer || (!device.is_cpu() && consumer->device() == device)) return;
  throw InvalidArgument(
      fmt::format("to_dlpack: expected {}, but got a stream of {}",
                  device.is_cpu() ? std::string("no stream for a CPU tensor")
                                  : "a stream of the tensor's device " + device.str(),
                  consumer->device().str()),
      device.str());
}

void order_consumer(const Tensor& self, const std::optional<Stream>& consumer) {
  if (!self.is_cuda()) return;
  const Stream current = Stream::current(self.device());
  const Stream& user = consumer ? *consumer : current;
  if (!(user == current)) user.wait(current);
  self.record_stream(user);
}

template <class Handle>
Handle* export_tensor(const Tensor& source, const std::optional<Stream>& consumer,
                      const ToDlpackOptions& how) {
  detail::check_defined("to_dlpack", "self", source);
  const Tensor there = how.device ? source.to(*how.device) : source;
  check_consumer(there.device(), consumer);
  const Tensor self = how.copy && there.is_same(source) ? source.clone() : there;
  auto exported = std::make_unique<Exported<FieldsOf<Handle>>>();
  exported->tensor = self;
  std::copy(self.sizes().begin(), self.sizes().end(), exported->sizes.begin());
  std::copy(self.strides().begin(), self.strides().end(), exported->strides.begin());
  auto& fields = exported->fields;
  fields.manager_ctx = exported.get();
  fields.deleter = &delete_exported<Handle>;
  if constexpr (std::is_same_v<Handle, DLManagedTensorVersioned>) {
    fields.version = dlpack::kVersion;
    if (!self.is_same(source)) fields.flags = dlpack::kIsCopied;
  }
  fields.dl_tensor = {.data = self.numel() == 0 ? nullptr : self.data(),
                      .device = place_of(self, how),
                      .ndim = self.dim(),
                      .dtype = {detail::type_code(self.dtype()),
                                static_cast<std::uint8_t>(8 * self.element_size()), 1},
                      .shape = exported->sizes.data(),
                      .strides = exported->strides.data(),
                      .byte_offset = 0};
  order_consumer(self, consumer);
  return dlpack::handle(exported.release()->fields);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& self, const std::optional<Stream>& consumer,
                                    const ToDlpackOptions& how) {
  return export_tensor<DLManagedTensorVersioned>(self, consumer, how);
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& self, const std::optional<Stream>& consumer,
                                       const ToDlpackOptions& how) {
  return export_tensor<DLManagedTensor>(self, consumer, how);
}

namespace detail {

dlpack::TypeCode type_code(DType dtype) {
  using dlpack::TypeCode;
  switch (dtype) {
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, torch, numpy, character, \
                     safetensors, dlpack, nccl)                                              \
  case DType::dtype:                                                                         \
    return static_cast<TypeCode>(dlpack);
#include <gantry/core/dtypes.def>
  }
  __builtin_unreachable();
}

Tensor exported_tensor(const dlpack::ManagedVersioned& fields) {
  return tensor_of<DLManagedTensorVersioned>(fields);
}

Tensor exported_tensor(const dlpack::Managed& fields) { return tensor_of<DLManagedTensor>(fields); }

}  // namespace detail

}  // namespace gantry
