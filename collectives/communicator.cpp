#include <fmt/format.h>

#include <chrono>
#include <thread>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/coalesce.hpp"
#include "collectives/communicator_impl.hpp"
#include "tensor/overlap.hpp"

namespace gantry {

struct Work::State {
  Event done;
  Device device;
  const ControlBlock* control = nullptr;
  std::uint64_t fence = 0;
};

void Work::wait() const { state_->done.wait(Stream::current(state_->device)); }

bool Work::query() const {
  if (state_->done.query()) return true;
  if (state_->control != nullptr) state_->control->check_peers(state_->fence);
  return false;
}

void Work::synchronize() const {
  // Polls rather than blocks: the device may wait for an event of a process that is gone.
  for (int polls = 0; !query(); ++polls) {
    if (polls < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

namespace {

void require_tensor(const Tensor& tensor, Device device, std::string_view op,
                    std::string_view argument) {
  if (!tensor.defined()) {
    throw InvalidArgument(
        fmt::format("{}: expected a defined tensor for argument '{}', but got an undefined tensor",
                    op, argument));
  }
  if (tensor.device() != device) {
    throw DeviceMismatchError(
        fmt::format("{}: expected argument '{}' on the communicator's device {}, but got {}", op,
                    argument, device.str(), tensor.device().str()),
        tensor.device().str());
  }
}

void require_same_dtype(const Tensor& output, const Tensor& input, std::string_view op) {
  if (output.dtype() == input.dtype()) return;
  throw DTypeError(fmt::format("{}: expected output of dtype {}, but got {}", op,
                               name(input.dtype()), name(output.dtype())));
}

// A result can only be written where each element has a place of its own.
void require_writable(const Tensor& tensor, std::string_view op, std::string_view argument) {
  if (!detail::has_internal_overlap(tensor)) return;
  throw InvalidArgument(fmt::format(
      "{}: expected '{}' to have a place for each element, but several share one (an expanded "
      "tensor?); clone() it first",
      op, argument));
}

// `large` must be `small` with size() times the rows.
void require_rows(const Tensor& large, const Tensor& small, int ranks, std::string_view op,
                  std::string_view argument) {
  Shape expected = small.sizes();
  const Shape& got = large.sizes();
  if (small.dim() > 0) expected[0] *= ranks;
  if (small.dim() == 0 || got != expected) {
    throw ShapeError(fmt::format(
        "{}: expected '{}' of shape {}, but got {}", op, argument,
        small.dim() == 0 ? std::string("with at least one dimension") : expected.str(), got.str()));
  }
}

}  // namespace

int Communicator::rank() const { return impl_->membership.rank; }
int Communicator::size() const { return impl_->membership.size; }
int Communicator::local_rank() const { return impl_->identity.local_rank; }
int Communicator::local_size() const { return impl_->identity.local_size; }
Device Communicator::device() const { return impl_->membership.device; }
const std::string& Communicator::launched_by() const { return impl_->identity.source; }
const std::vector<std::string>& Communicator::device_map() const { return impl_->device_map; }

std::string Communicator::transport() const {
  if (impl_->p2p) return "p2p";
  return impl_->nccl ? "nccl" : "none";
}

// Runs one operation: numbers it, picks the transport, and marks its end.
template <class Run>
Work Communicator::submit(Descriptor call, std::int64_t bytes, Run run) {
  const std::lock_guard lock(impl_->mutex);
  const Stream stream = Stream::current(device());
  if (size() > 1) {
    if (impl_->control) impl_->control->require_intact();
    call.sequence = ++impl_->sequence;
    try {
      run(impl_->transport_for(call, bytes), call, stream);
    } catch (const CollectiveMismatch&) {
      if (impl_->p2p) impl_->p2p->restart();
      throw;
    } catch (...) {
      // The others wait for this rank's part of the operation.
      if (impl_->control) impl_->control->abort();
      throw;
    }
  }
  auto state = std::make_shared<Work::State>();
  state->device = device();
  state->done.record(stream);
  state->control = impl_->control.get();
  state->fence = state->control != nullptr ? state->control->last_fence() : 0;
  return Work(std::move(state));
}

Work Communicator::all_reduce(Tensor& tensor, ReduceOp op, CollectiveOptions options) {
  require_tensor(tensor, device(), "all_reduce", "tensor");
  require_writable(tensor, "all_reduce", "tensor");
  (void)folding(op, tensor.dtype(), size(), "all_reduce");
  Tensor dense = tensor.contiguous();
  const Descriptor call{.count = dense.numel(),
                        .kind = CollectiveKind::all_reduce,
                        .op = op,
                        .dtype = dense.dtype(),
                        .reproducible = options.reproducible};
  Work work = submit(call, static_cast<std::int64_t>(dense.nbytes()),
                     [&](Transport& transport, const Descriptor& numbered, const Stream& stream) {
                       transport.all_reduce(dense.data(), numbered, stream);
                     });
  if (tensor.is_contiguous()) return work;
  tensor.copy_(dense);
  work.state_->done.record(Stream::current(device()));
  return work;
}

Work Communicator::all_reduce_coalesced(std::span<Tensor> tensors, ReduceOp op,
                                        CollectiveOptions options) {
  if (tensors.empty()) {
    throw InvalidArgument("all_reduce_coalesced: expected at least one tensor, but got none");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_tensor(tensors[i], device(), "all_reduce_coalesced", fmt::format("tensors[{}]", i));
    require_writable(tensors[i], "all_reduce_coalesced", fmt::format("tensors[{}]", i));
    (void)folding(op, tensors[i].dtype(), size(), "all_reduce_coalesced");
  }
  std::optional<Work> last;
  for (const Bucket& bucket : make_buckets(tensors, SIZE_MAX)) {
    Tensor flat = flatten_bucket(bucket, tensors);
    last = all_reduce(flat, op, options);
    unflatten_bucket(bucket, flat, tensors);
  }
  last->state_->done.record(Stream::current(device()));
  return *last;
}

Work Communicator::broadcast(Tensor& tensor, int root) {
  require_tensor(tensor, device(), "broadcast", "tensor");
  require_writable(tensor, "broadcast", "tensor");
  if (root < 0 || root >= size()) {
    throw InvalidArgument(
        fmt::format("broadcast: expected a root from 0 to {}, but got {}", size() - 1, root));
  }
  Tensor dense = tensor.contiguous();
  const Descriptor call{.count = dense.numel(),
                        .root = root,
                        .kind = CollectiveKind::broadcast,
                        .dtype = dense.dtype()};
  Work work = submit(call, static_cast<std::int64_t>(dense.nbytes()),
                     [&](Transport& transport, const Descriptor& numbered, const Stream& stream) {
                       transport.broadcast(dense.data(), numbered, stream);
                     });
  if (tensor.is_contiguous()) return work;
  tensor.copy_(dense);
  work.state_->done.record(Stream::current(device()));
  return work;
}

Work Communicator::all_gather(Tensor& output, const Tensor& input) {
  require_tensor(output, device(), "all_gather", "output");
  require_tensor(input, device(), "all_gather", "input");
  require_writable(output, "all_gather", "output");
  require_same_dtype(output, input, "all_gather");
  require_rows(output, input, size(), "all_gather", "output");
  const Tensor source = input.contiguous();
  Tensor dense = output.is_contiguous() ? output : output.new_empty(output.sizes());
  const Descriptor call{
      .count = source.numel(), .kind = CollectiveKind::all_gather, .dtype = source.dtype()};
  Work work = submit(call, static_cast<std::int64_t>(source.nbytes()),
                     [&](Transport& transport, const Descriptor& numbered, const Stream& stream) {
                       transport.all_gather(dense.data(), source.data(), numbered, stream);
                     });
  if (size() == 1) dense.copy_(source);
  if (!output.is_contiguous()) output.copy_(dense);
  work.state_->done.record(Stream::current(device()));
  return work;
}

Work Communicator::reduce_scatter(Tensor& output, const Tensor& input, ReduceOp op,
                                  CollectiveOptions options) {
  require_tensor(output, device(), "reduce_scatter", "output");
  require_tensor(input, device(), "reduce_scatter", "input");
  require_writable(output, "reduce_scatter", "output");
  require_same_dtype(output, input, "reduce_scatter");
  require_rows(input, output, size(), "reduce_scatter", "input");
  (void)folding(op, input.dtype(), size(), "reduce_scatter");
  const Tensor source = input.contiguous();
  Tensor dense = output.is_contiguous() ? output : output.new_empty(output.sizes());
  const Descriptor call{.count = dense.numel(),
                        .kind = CollectiveKind::reduce_scatter,
                        .op = op,
                        .dtype = source.dtype(),
                        .reproducible = options.reproducible};
  Work work = submit(call, static_cast<std::int64_t>(source.nbytes()),
                     [&](Transport& transport, const Descriptor& numbered, const Stream& stream) {
                       transport.reduce_scatter(dense.data(), source.data(), numbered, stream);
                     });
  if (size() == 1) dense.copy_(source);
  if (!output.is_contiguous()) output.copy_(dense);
  work.state_->done.record(Stream::current(device()));
  return work;
}

Work Communicator::barrier() {
  return submit(Descriptor{.kind = CollectiveKind::barrier}, 0,
                [](Transport& transport, const Descriptor& numbered, const Stream& stream) {
                  transport.barrier(numbered, stream);
                });
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& bytes) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->bootstrap->all_gather(bytes);
}

void Communicator::abort() noexcept {
  if (impl_->control) impl_->control->abort();
}

}  // namespace gantry
