#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include <gantry/device/device.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

#include "collectives/multi_gpu/output_cache.hpp"
#include "kernels/op_scope.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "streams/stream_order.hpp"

namespace gantry {

// The size thresholds of comm::*, measured on 8 × H200. Tests set other values while no collective
// runs.
struct CommTuning {
  // Note [Helper devices]
  // One device that writes to all n - 1 others, or reads from them, transfers n - 1 times the data
  // over its link. For large data all other devices become helpers, and each handles one part. So
  // no link carries the data more than once, which is the minimum. A helper of a broadcast reads
  // its part from the source and writes it to every receiver. A helper of a reduction reads its
  // part of every input and writes the result to the destination. Both are one pass of one kernel.
  // With link bandwidth B the time is about bytes / B instead of (n - 1) bytes / B. The cost is
  // twice the stream waits and n - 1 launches, some tens of microseconds. Bandwidth of one
  // direction of an H200's link, in GB/s: copy engine 394, loads of a kernel 372, stores 368. With
  // equal traffic in the other direction: copy engine 390, loads 334, because their requests share
  // that direction, and stores 363. A sum consists of loads, so it is slower than a broadcast.
  std::size_t helper_bytes = std::size_t{4} << 20;
  // From this size on copy engines send a scatter, all_gather, all_to_all, or a broadcast to one
  // other device: 6 % faster than a kernel's stores, but they begin some 5 us later on
  // the default stream.
  std::size_t send_by_engines_bytes = std::size_t{32} << 20;
  // From this size on copy engines read the chunks of a gather: 3 % faster than a kernel's loads,
  // and 10 us later.
  std::size_t fetch_by_engines_bytes = std::size_t{96} << 20;
  // The most bytes of cached outputs of one kind; see Note [Cached outputs].
  std::size_t cached_output_bytes = std::size_t{4} << 20;
};

[[nodiscard]] CommTuning& comm_tuning();

// A call of the program: its kernels and copies have its name in reports of the sanitizer and in
// traces.
class NamedCall {
 public:
  // `name` is a string literal.
  explicit NamedCall(const char* name) noexcept : in_reports_(name), in_traces_(name) {}

 private:
  sanitizer::OperationName in_reports_;
  kernels::OpScope in_traces_;
};

// The devices of one call of comm::*: their streams, who reaches whom, and whose memory is open.
// Each fact is asked once. The root is the device that works for all others, or orders them: see
// Note [Root streams]. With up to 8 devices the lists of a call need no heap.
class MultiDeviceCall {
 public:
  // Lists of tensors that wait for the call's streams, if the call fails in the middle.
  using Operands = std::initializer_list<std::span<const Tensor>>;

  explicit MultiDeviceCall(const Stream& root);
  // A call on `operands`, which uses the current streams of all devices.
  MultiDeviceCall(Device root, Operands operands);
  // A call on new memory of `devices` and the root.
  MultiDeviceCall(Device root, std::span<const Device> devices);
  MultiDeviceCall(const MultiDeviceCall&) = delete;
  MultiDeviceCall& operator=(const MultiDeviceCall&) = delete;

  // Adds an operand, on its device's current stream.
  void add(const Tensor& operand);
  // Adds another stream. The caller knows that the root reaches its memory.
  void add(const Stream& stream) { add_stream(streams_, stream); }

  [[nodiscard]] const Stream& root() const { return streams_.front(); }
  // The distinct streams of all operands, the root's first.
  [[nodiscard]] std::span<const Stream> streams() const { return streams_; }
  // The device of each operand.
  [[nodiscard]] std::span<const Device> devices() const { return devices_; }
  // True if kernels of the root reach all operands.
  [[nodiscard]] bool is_direct() const { return is_direct_; }
  // True if all operands' memory is peer-accessible.
  [[nodiscard]] bool is_open() const { return is_open_; }
  // True if kernels of every device reach all operands.
  [[nodiscard]] bool is_mesh() const;
  // The streams of the devices that each handle one part of `bytes`. None if the root is faster
  // alone. See Note [Helper devices].
  [[nodiscard]] std::span<const Stream> helpers(std::size_t bytes) const;
  // Memory for lists that do not outlive the call.
  [[nodiscard]] std::pmr::memory_resource* memory() { return &memory_; }

  // Makes the root join the capture of another stream, if there is one. Later allocations for the
  // root are in the capture's memory pool.
  void join_capture() const;

  // Records the tensors' use on all streams with the allocator, after work failed in the middle.
  void keep(std::span<const Tensor> tensors) const noexcept;

  // Calls submit(stream, i, n) for each of the n workers; for the root's stream if there are none.
  // The work is ordered with all streams before and after. `cached` made the outputs that are on
  // other devices than the root, if they are new.
  template <class Submit>
  void run(Operands operands, std::span<const Stream> workers, Submit submit,
           CachedOutputs* cached = nullptr) const {
    try {
      if (workers.empty()) {
        if (cached != nullptr) {
          cached->order();
        } else {
          order_behind(root(), others());
        }
        submit(root(), 0, 1);
        release_behind(others(), root());
        return;
      }
      order_all(streams_);
      for (std::size_t i = 0; i < workers.size(); ++i) {
        submit(workers[i], static_cast<int>(i), static_cast<int>(workers.size()));
      }
      order_all(streams_);
    } catch (...) {
      for (const std::span<const Tensor> tensors : operands) keep(tensors);
      throw;
    }
  }

 private:
  static constexpr std::size_t kInlineBytes = 1024;

  void reserve(std::size_t operands);
  void add(Device device, bool is_open);
  [[nodiscard]] std::span<const Stream> others() const { return streams().subspan(1); }

  alignas(std::max_align_t) std::array<std::byte, kInlineBytes> inline_memory_;
  std::pmr::monotonic_buffer_resource memory_{inline_memory_.data(), inline_memory_.size()};
  std::pmr::vector<Stream> streams_{&memory_};
  std::pmr::vector<Device> devices_{&memory_};
  bool is_direct_ = true;
  bool is_open_ = true;
  mutable std::optional<bool> is_mesh_;
};

// Returns the tensors themselves if all are contiguous. Else fills `copies` with contiguous tensors
// of the same elements, and returns these.
std::span<const Tensor> contiguous_of(std::span<const Tensor> tensors, std::vector<Tensor>& copies);

// The address of an element of `tensor`, `index` elements behind the first one.
std::byte* element(const Tensor& tensor, std::int64_t index);

}  // namespace gantry
