#include <gantry/collectives/communicator.hpp>

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/communicator/call_options.hpp"
#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/multi_gpu/buckets.hpp"
#include "collectives/multi_gpu/checks.hpp"
#include "collectives/reduction.hpp"
#include "collectives/selection/descriptor.hpp"
#include "collectives/traced_collective.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "tensor/overlap.hpp"

namespace gantry {

Communicator::Impl& Communicator::impl(std::string_view member) const {
  if (impl_) return *impl_;
  throw InvalidArgument(
      fmt::format("{}: expected a defined communicator, but got an undefined one (split() with a "
                  "negative color?)",
                  member));
}

int Communicator::rank() const { return impl("rank").members.self.rank; }
int Communicator::size() const { return impl("size").members.self.size; }
int Communicator::local_rank() const { return impl("local_rank").members.identity.local_rank; }
int Communicator::local_size() const { return impl("local_size").members.identity.local_size; }
Device Communicator::device() const { return impl("device").members.self.device; }
const std::string& Communicator::launched_by() const {
  return impl("launched_by").members.identity.source;
}
const std::vector<std::string>& Communicator::device_map() const {
  return impl("device_map").members.ranks->descriptions();
}
const std::string& Communicator::name() const { return impl("name").members.label; }

std::optional<int> Communicator::rank_in(const Communicator& other, int rank) const {
  const Members& mine = impl("rank_in").members;
  const Members& theirs = other.impl("rank_in").members;
  require_rank(rank, mine.self.size, "rank_in");
  return theirs.ranks->find(mine.ranks->facts(rank));
}

std::chrono::milliseconds Communicator::timeout() const {
  return impl("timeout").members.timeout.get();
}
void Communicator::set_timeout(std::chrono::milliseconds timeout) const {
  Impl& mine = impl("set_timeout");
  if (timeout.count() <= 0) {
    throw InvalidArgument(
        fmt::format("set_timeout: expected a positive timeout, but got {} ms", timeout.count()));
  }
  mine.members.timeout.set(timeout);
}

std::string Communicator::transport() const {
  return std::string(impl("transport").transports.name());
}

namespace {

// Runs an operation of a group with one rank: a reduction of one input, or a copy.
void run_alone(const CollectiveCall& call, Tensor& output, const Tensor& input) {
  const Descriptor& what = call.what;
  if (!reduces(what.kind)) {
    if (output.data() != input.data()) output.view(input.sizes()).copy_(input);
    return;
  }
  const void* source = input.data();
  kernels::nary(kernels::Target::on(Stream::current(output.device())),
                reduction_for(what.op, what.dtype, 1, name(what.kind)).op, output.data(),
                {&source, 1}, what.count, what.dtype);
  if (what.scale == 1) return;
  if (computes(what.dtype)) {
    output.mul_(what.scale);
  } else {
    output.copy_(output.to(DType::f32).mul_(what.scale));
  }
}

}  // namespace

// Enqueues one operation on the current stream and records its end.
Work Communicator::submit(CollectiveCall& call) const {
  impl_->open_messages.require_none(call.what.kind);
  const std::lock_guard lock(impl_->mutex);
  const sanitizer::Suspension parts;
  const Stream stream = Stream::current(device());
  auto state = std::make_shared<Work::State>();
  state->device = device();
  if (size() > 1) {
    End end = impl_->run(call, stream);
    state->done = std::move(end.event);
    state->ledger = impl_->shared_ledger();
    state->first_call = state->last_call = static_cast<std::uint64_t>(call.what.call);
    state->reports_losses = end.reports_losses;
  }
  if (state->done == nullptr) state->mark_end(stream);
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::lead_queue(impl_.get(), stream);
  }
  return Work(std::move(state));
}

// Marks the end after additional work of an operation.
void Communicator::mark_end(Work& work) {
  work.state_->mark_end(Stream::current(work.state_->device));
}

// True if the smaller array is this rank's own slice of the larger one. Peers never access that
// slice, and this rank reads each element before it writes it.
bool Communicator::is_own_slice(const CollectiveCall& call, const Tensor& output,
                                const Tensor& input) const {
  if (impl_->transports.p2p() == nullptr || call.is_uneven()) return false;
  const auto is_slice = [&](const Tensor& whole, const Tensor& slice) {
    return whole.is_contiguous() && slice.is_contiguous() &&
           slice.data() == static_cast<std::byte*>(whole.data()) +
                               static_cast<std::size_t>(rank()) * slice.nbytes();
  };
  switch (call.what.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
      return is_slice(output, input);
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::scatter:
      return is_slice(input, output);
    default:
      return false;
  }
}

// As transfer(), with an event in traces.
Work Communicator::move_between(CollectiveCall& call, const Tensor* output, const Tensor* input,
                                const CollectiveOptions& options) const {
  const TracedCollective traced(call, size());
  return transfer(call, output, input, options);
}

// Runs an operation that reads `input` and writes `output`; either may be null or strided.
Work Communicator::transfer(CollectiveCall& call, const Tensor* output, const Tensor* input,
                            const CollectiveOptions& options) const {
  set_options(call, options, gantry::name(call.what.kind));
  impl_->transports.require_served(call);
  // Only reductions support in-place arrays; other operations read a copy of the input.
  const bool is_one =
      output != nullptr && input != nullptr && (output == input || is_same_array(*output, *input));
  const bool in_place = is_one && (call.what.kind == CollectiveKind::all_reduce ||
                                   call.what.kind == CollectiveKind::reduce);
  const bool overlap = output != nullptr && input != nullptr && !in_place &&
                       !is_own_slice(call, *output, *input) &&
                       detail::overlap_of(*output, *input) != detail::Overlap::none;
  std::optional<Tensor> source;
  if (input != nullptr) source = overlap ? input->clone() : input->contiguous();
  std::optional<Tensor> dense;
  if (output != nullptr) {
    // Keeps the current elements, which a failed operation does not change.
    dense = in_place && !output->is_contiguous() ? *source : output->contiguous();
  }
  call.in = source ? source->data() : nullptr;
  call.out = dense ? dense->data() : nullptr;
  // Small operations need not know, and the answer can be a question to the driver.
  const auto may_open = [&](const std::optional<Tensor>& array) {
    const auto ranks = static_cast<std::size_t>(size());
    return array && array->nbytes() * ranks >= static_cast<std::size_t>(kLeastOpenBytes);
  };
  call.is_open = (!may_open(source) || source->storage().is_peer_accessible()) &&
                 (!may_open(dense) || dense->storage().is_peer_accessible());
  if (may_open(source)) call.in_block = source->storage().block();
  if (may_open(dense)) call.out_block = dense->storage().block();
  std::vector<sanitizer::Use> uses;
  if (sanitizer::is_on()) [[unlikely]] {
    if (source) uses.push_back(sanitizer::reads(*source));
    if (dense) uses.push_back(sanitizer::writes(*dense));
  }
  const Stream stream = Stream::current(device());
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::follow_queue(impl_.get(), stream);
  }
  sanitizer::Submission checked(gantry::name(call.what.kind), stream, uses);
  Work work = submit(call);
  checked.commit();
  const bool is_alone = size() == 1 && dense && source;
  const bool comes_back = output != nullptr && !output->is_contiguous();
  if (is_alone) run_alone(call, *dense, *source);
  if (comes_back) Tensor(*output).copy_(*dense);
  if (is_alone || comes_back) mark_end(work);
  return work;
}

Work Communicator::all_reduce(const Tensor& tensor, ReduceOp op, CollectiveOptions options) const {
  const Membership& me = impl("all_reduce").members.self;
  require_tensor(tensor, me.device, "all_reduce", "tensor");
  require_writable(tensor, "all_reduce", "tensor");
  require_reducible(op, tensor.dtype(), options, "all_reduce");
  CollectiveCall call = call_on(CollectiveKind::all_reduce, tensor, -1, op);
  return move_between(call, &tensor, &tensor, options);
}

Work Communicator::all_reduce(const Tensor& output, const Tensor& input, ReduceOp op,
                              CollectiveOptions options) const {
  const Membership& me = impl("all_reduce").members.self;
  require_pair(output, input, me.device, "all_reduce");
  require_same_shape(output, input, "all_reduce");
  require_reducible(op, input.dtype(), options, "all_reduce");
  CollectiveCall call = call_on(CollectiveKind::all_reduce, input, -1, op);
  call.is_apart = true;
  return move_between(call, &output, &input, options);
}

Work Communicator::all_reduce_coalesced(std::span<const Tensor> tensors, ReduceOp op,
                                        CollectiveOptions options) const {
  const Membership& me = impl("all_reduce_coalesced").members.self;
  if (tensors.empty()) {
    throw InvalidArgument("all_reduce_coalesced: expected at least one tensor, but got none");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string argument = fmt::format("tensors[{}]", i);
    require_tensor(tensors[i], me.device, "all_reduce_coalesced", argument);
    require_writable(tensors[i], "all_reduce_coalesced", argument);
    require_reducible(op, tensors[i].dtype(), options, "all_reduce_coalesced");
  }
  comm::require_separate("all_reduce_coalesced", tensors);
  TracedCollective traced("all_reduce_coalesced", size());
  std::optional<Work> last;
  std::vector<Tensor> results(tensors.begin(), tensors.end());  // the same memory
  CollectiveCall call{
      .what = {.kind = CollectiveKind::all_reduce, .op = op, .operands = list_operands(tensors)}};
  const std::vector<Bucket> buckets = make_buckets(tensors, SIZE_MAX);
  set_options(call, options, "all_reduce_coalesced");
  for (const Bucket& bucket : buckets) {
    call.what.count = bucket.elements;
    call.what.dtype = bucket.dtype;
    impl_->transports.require_served(call);
  }
  for (const Bucket& bucket : buckets) {
    Tensor flat = flatten_bucket(bucket, tensors);
    call.what.count = flat.numel();
    call.what.dtype = flat.dtype();
    last = transfer(call, &flat, &flat, options);
    traced.note_message(call);
    call.continues = true;
    unflatten_bucket(bucket, flat, results);
  }
  mark_end(*last);
  return *last;
}

Work Communicator::reduce(const Tensor& tensor, int root, ReduceOp op,
                          CollectiveOptions options) const {
  const Membership& me = impl("reduce").members.self;
  require_tensor(tensor, me.device, "reduce", "tensor");
  require_writable(tensor, "reduce", "tensor");
  require_root(root, me.size, "reduce");
  require_reducible(op, tensor.dtype(), options, "reduce");
  CollectiveCall call = call_on(CollectiveKind::reduce, tensor, root, op);
  return move_between(call, me.rank == root ? &tensor : nullptr, &tensor, options);
}

Work Communicator::reduce(const Tensor& output, const Tensor& input, int root, ReduceOp op,
                          CollectiveOptions options) const {
  const Membership& me = impl("reduce").members.self;
  require_root(root, me.size, "reduce");
  if (me.rank == root) {
    require_pair(output, input, me.device, "reduce");
    require_same_shape(output, input, "reduce");
  } else {
    require_tensor(input, me.device, "reduce", "input");
  }
  require_reducible(op, input.dtype(), options, "reduce");
  CollectiveCall call = call_on(CollectiveKind::reduce, input, root, op);
  call.is_apart = true;
  return move_between(call, me.rank == root ? &output : nullptr, &input, options);
}

Work Communicator::reduce_scatter(const Tensor& output, const Tensor& input, ReduceOp op,
                                  CollectiveOptions options) const {
  const Membership& me = impl("reduce_scatter").members.self;
  require_pair(output, input, me.device, "reduce_scatter");
  require_joined(input, output, me.size, "reduce_scatter", "input");
  require_reducible(op, input.dtype(), options, "reduce_scatter");
  CollectiveCall call = call_on(CollectiveKind::reduce_scatter, output, -1, op);
  return move_between(call, &output, &input, options);
}

Work Communicator::barrier(CollectiveOptions options) const {
  (void)impl("barrier");
  CollectiveCall call{.what = {.kind = CollectiveKind::barrier}};
  const TracedCollective traced(call, size());
  set_options(call, options, "barrier");
  impl_->transports.require_served(call);
  return submit(call);
}

void Communicator::register_memory(const Tensor& tensor) const {
  Impl& mine = impl("register_memory");
  require_tensor(tensor, mine.members.self.device, "register_memory", "tensor");
  const std::lock_guard lock(mine.mutex);
  mine.rendezvous(HostCall::register_memory);
  mine.transports.add_memory(tensor.storage());
}

void Communicator::deregister_memory(const Tensor& tensor) const {
  Impl& mine = impl("deregister_memory");
  const Device device = mine.members.self.device;
  require_tensor(tensor, device, "deregister_memory", "tensor");
  const std::lock_guard lock(mine.mutex);
  mine.transports.remove_memory(tensor.storage(), Stream::current(device));
}

void Communicator::host_barrier() const {
  Impl& mine = impl("host_barrier");
  const std::lock_guard lock(mine.mutex);
  mine.rendezvous(HostCall::host_barrier);
  if (!mine.members.control) (void)mine.members.bootstrap->all_gather("");
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& bytes) const {
  Impl& mine = impl("all_gather_bytes");
  const std::lock_guard lock(mine.mutex);
  mine.rendezvous(HostCall::all_gather_bytes);
  return mine.members.bootstrap->all_gather(bytes);
}

void Communicator::suspend() const {
  Impl& mine = impl("suspend");
  const std::lock_guard lock(mine.mutex);
  mine.suspend();
}

void Communicator::resume() const {
  Impl& mine = impl("resume");
  const std::lock_guard lock(mine.mutex);
  mine.resume();
}

bool Communicator::is_suspended() const { return impl("is_suspended").is_suspended(); }

std::exception_ptr Communicator::failure() const noexcept {
  return impl_ ? impl_->ledger.failure() : nullptr;
}

void Communicator::abort() const noexcept {
  if (impl_) impl_->abort();
}

}  // namespace gantry
