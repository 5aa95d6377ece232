#include "compat/nccl/operation.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "compat/nccl/arithmetic.hpp"
#include "compat/nccl/data_type.hpp"

namespace gantry::nccl_api {

namespace {

// The most messages that Communicator::group() takes.
constexpr std::size_t kMostMessages = 512;

// A shorter copy takes less time than the order between two streams.
constexpr std::size_t kLeastBesideBytes = std::size_t{4} << 20;

// The array of an operation at an address of the program.
Tensor array_at(const void* data, std::int64_t count, DType dtype, Device device) {
  const TensorOptions options{.dtype = dtype, .device = device};
  if (count == 0) return empty({0}, options);
  return from_blob(const_cast<void*>(data), {count}, options);
}

// An array of a call: its address, and the number of its elements.
struct Place {
  const void* data;
  std::size_t count;
};

// The arrays that a call reads and writes on this rank; others have no elements.
std::array<Place, 2> places_of(const Rank& rank, const Operation& call) {
  const std::size_t count = call.count;
  const std::size_t all = count * static_cast<std::size_t>(rank.size);
  const bool is_root = rank.rank == call.peer;
  switch (call.kind) {
    case OperationKind::all_reduce:
      return {{{call.send, count}, {call.recv, count}}};
    case OperationKind::reduce:
      return {{{call.send, count}, {call.recv, is_root ? count : 0}}};
    case OperationKind::broadcast:
      return {{{call.send, is_root ? count : 0}, {call.recv, count}}};
    case OperationKind::all_gather:
      return {{{call.send, count}, {call.recv, all}}};
    case OperationKind::reduce_scatter:
      return {{{call.send, all}, {call.recv, count}}};
    case OperationKind::gather:
      return {{{call.send, count}, {call.recv, is_root ? all : 0}}};
    case OperationKind::scatter:
      return {{{call.send, is_root ? all : 0}, {call.recv, count}}};
    case OperationKind::all_to_all:
      return {{{call.send, all}, {call.recv, all}}};
    case OperationKind::send:
      return {{{call.send, count}, {nullptr, 0}}};
    case OperationKind::recv:
      return {{{nullptr, 0}, {call.recv, count}}};
  }
  __builtin_unreachable();
}

// A reduction whose inputs and results may need work around it. See Arithmetic.
class Reduction {
 public:
  Reduction(const Rank& rank, const Operation& operation, const Stream& stream)
      : rank_(rank),
        operation_(operation),
        stream_(stream),
        type_(data_type(operation.type)),
        factor_(operation.factor),
        op_(factor_ ? ReduceOp::sum : rank_operator(operation.op, type_)) {
    const bool orders = op_ == ReduceOp::min || op_ == ReduceOp::max;
    flips_ = type_.arithmetic == Arithmetic::unsigned_ && orders;
    widens_ = type_.arithmetic == Arithmetic::small_float;
    divides_ = operation.op == ncclAvg && !type_.is_floating;
    // Kernels that get a wrong address destroy the device's context.
    if (!reads_inputs() || divides_) check_memory(rank, operation);
  }

  [[nodiscard]] ReduceOp op() const { return op_; }
  // True if ranks reduce the program's own inputs.
  [[nodiscard]] bool reads_inputs() const { return !flips_ && !widens_ && !factor_; }

  // What the ranks reduce in place of `input`: at `place`, or in memory of its own if that is null
  // or has other elements.
  [[nodiscard]] Tensor prepared(const void* input, std::int64_t count, void* place) const {
    const bool fits = place != nullptr && !widens_;
    const Tensor work = fits ? array_at(place, count, type_.reduced_as, rank_.device)
                             : empty({count}, {.dtype = type_.reduced_as, .device = rank_.device});
    if (count == 0) return work;
    const void* source = input;
    std::optional<Tensor> product;
    if (factor_) {
      product = widens_ ? empty({count}, {.dtype = DType::u8, .device = rank_.device}) : work;
      multiply(stream_, input, product->data(), count, operation_.type, factor_->factor);
      source = product->data();
    }
    if (widens_) {
      widen(stream_, source, work.data_ptr<float>(), count, operation_.type);
    } else if (flips_) {
      flip_sign(stream_, source, work.data(), count, element_bytes(operation_.type));
    }
    return work;
  }

  // Writes the result of the ranks, `work`, to `output`.
  void complete(const Tensor& work, void* output, std::int64_t count) const {
    if (count == 0) return;
    if (widens_) narrow(stream_, work.data_ptr<float>(), output, count, operation_.type);
    if (flips_) flip_sign(stream_, work.data(), output, count, element_bytes(operation_.type));
    if (divides_) divide(stream_, output, count, operation_.type, rank_.size);
  }

 private:
  const Rank& rank_;
  const Operation& operation_;
  const Stream& stream_;
  const DataType& type_;
  const std::optional<PreMulSum>& factor_;
  ReduceOp op_;
  bool flips_ = false;
  bool widens_ = false;
  bool divides_ = false;
};

void run_reduction(const Communicator& group, const Rank& rank, const Operation& call,
                   const Stream& stream) {
  const Reduction reduction(rank, call, stream);
  const DataType& type = data_type(call.type);
  const auto count = static_cast<std::int64_t>(call.count);
  const bool scatters = call.kind == OperationKind::reduce_scatter;
  const bool receives = call.kind != OperationKind::reduce || rank.rank == call.peer;
  const std::int64_t inputs = scatters ? count * rank.size : count;
  // Inputs that need no work are the program's own. Others are prepared where the result goes.
  const bool has_room = receives && !scatters;
  const Tensor input = reduction.reads_inputs()
                           ? array_at(call.send, inputs, type.reduced_as, rank.device)
                           : reduction.prepared(call.send, inputs, has_room ? call.recv : nullptr);
  Tensor output;
  if (receives && type.arithmetic != Arithmetic::small_float) {
    output = array_at(call.recv, count, type.reduced_as, rank.device);
  } else if (receives) {
    output = has_room ? input : empty({count}, {.dtype = DType::f32, .device = rank.device});
  }
  switch (call.kind) {
    case OperationKind::all_reduce:
      group.all_reduce(output, input, reduction.op());
      break;
    case OperationKind::reduce:
      group.reduce(output, input, call.peer, reduction.op());
      break;
    default:
      group.reduce_scatter(output, input, reduction.op());
      break;
  }
  if (receives) reduction.complete(output, call.recv, count);
}

// Broadcasts `data`, which is the input on the root. The root's copy of it runs beside the
// transfer.
void run_broadcast(const Communicator& group, const Tensor& data, const Operation& call,
                   const Stream& stream) {
  const bool copies = group.rank() == call.peer && call.send != call.recv && call.count > 0;
  if (!copies) {
    group.broadcast(data, call.peer);
    return;
  }
  const auto copy = [&] {
    array_at(call.recv, data.numel(), data.dtype(), data.device()).copy_(data);
  };
  if (data.nbytes() < kLeastBesideBytes) {
    group.broadcast(data, call.peer);
    return copy();
  }
  const Stream side = Stream::from_pool(data.device());
  side.wait(stream);
  {
    const StreamGuard guard(side);
    copy();
  }
  group.broadcast(data, call.peer);
  stream.wait(side);
}

// Sends and receives, alone or into the open group() of this thread.
void run_message(const Communicator& group, const Rank& rank, const Operation& call) {
  const DType dtype = data_type(call.type).moved_as;
  const auto count = static_cast<std::int64_t>(call.count);
  if (call.kind == OperationKind::send) {
    group.send(array_at(call.send, count, dtype, rank.device), call.peer);
  } else {
    group.recv(array_at(call.recv, count, dtype, rank.device), call.peer);
  }
}

// Messages in the order of a rank's calls, in parts that Communicator::group() takes. Each part has
// the next few messages of each pair of ranks and direction, so all ranks make equal parts.
std::vector<std::vector<Operation>> parts_of(std::span<const Operation> messages, int ranks) {
  if (messages.size() <= kMostMessages) return {{messages.begin(), messages.end()}};
  const std::size_t each =
      std::max<std::size_t>(1, kMostMessages / 2 / static_cast<std::size_t>(ranks));
  std::map<std::pair<OperationKind, int>, std::size_t> seen;
  std::vector<std::vector<Operation>> parts;
  for (const Operation& message : messages) {
    const std::size_t part = seen[{message.kind, message.peer}]++ / each;
    if (parts.size() <= part) parts.resize(part + 1);
    parts[part].push_back(message);
  }
  return parts;
}

}  // namespace

Operation checked(const Rank& rank, Operation operation) {
  const DataType& type = data_type(operation.type);
  operation.factor = rank.find_operator(operation.op);
  if (operation.factor && operation.factor->type != operation.type) {
    throw InvalidArgument(std::string("expected elements of the operator's type ") +
                          data_type(operation.factor->type).name + ", but got " + type.name);
  }
  const bool has_peer = operation.kind == OperationKind::reduce ||
                        operation.kind == OperationKind::broadcast ||
                        operation.kind == OperationKind::gather ||
                        operation.kind == OperationKind::scatter || operation.is_message();
  if (has_peer && (operation.peer < 0 || operation.peer >= rank.size)) {
    throw InvalidArgument("expected a rank from 0 to " + std::to_string(rank.size - 1) +
                          ", but got " + std::to_string(operation.peer));
  }
  const std::size_t most = std::numeric_limits<std::int64_t>::max() / sizeof(double);
  if (operation.count > most / static_cast<std::size_t>(rank.size)) {
    throw InvalidArgument("expected a number of elements that memory can have, but got " +
                          std::to_string(operation.count));
  }
  for (const Place& place : places_of(rank, operation)) {
    if (place.data != nullptr || place.count == 0) continue;
    throw InvalidArgument("expected memory for " + std::to_string(place.count) +
                          " elements, but got null");
  }
  return operation;
}

void check_memory(const Rank& rank, const Operation& operation) {
  const DType dtype = data_type(operation.type).moved_as;
  for (const Place& place : places_of(rank, operation)) {
    (void)array_at(place.data, static_cast<std::int64_t>(place.count), dtype, rank.device);
  }
}

void run(Rank& rank, const Operation& call) {
  const Communicator group = rank.group();
  const Stream stream = Stream::external(call.stream, rank.device);
  const StreamGuard guard(stream);
  if (call.is_message()) return run_message(group, rank, call);
  const auto count = static_cast<std::int64_t>(call.count);
  const std::int64_t all = count * rank.size;
  const DType dtype = data_type(call.type).moved_as;
  const auto array = [&](const void* data, std::int64_t elements) {
    return array_at(data, elements, dtype, rank.device);
  };
  const bool is_root = rank.rank == call.peer;
  switch (call.kind) {
    case OperationKind::broadcast:
      return run_broadcast(group, array(is_root ? call.send : call.recv, count), call, stream);
    case OperationKind::all_gather:
      group.all_gather(array(call.recv, all), array(call.send, count));
      return;
    case OperationKind::gather:
      group.gather(is_root ? array(call.recv, all) : Tensor(), array(call.send, count), call.peer);
      return;
    case OperationKind::scatter:
      group.scatter(array(call.recv, count), is_root ? array(call.send, all) : Tensor(), call.peer);
      return;
    case OperationKind::all_to_all:
      group.all_to_all(array(call.recv, all), array(call.send, all));
      return;
    default:
      return run_reduction(group, rank, call, stream);
  }
}

void run_group(Rank& rank, std::span<const Operation> operations) {
  std::vector<Operation> messages;
  for (const Operation& operation : operations) {
    if (operation.is_message()) {
      messages.push_back(operation);
    } else {
      run(rank, operation);
    }
  }
  if (messages.empty()) return;
  const Communicator group = rank.group();
  for (const std::vector<Operation>& part : parts_of(messages, rank.size)) {
    MessageGroup together = group.group();
    for (const Operation& message : part) {
      const StreamGuard guard(Stream::external(message.stream, rank.device));
      run_message(group, rank, message);
    }
    (void)together.end();
  }
}

}  // namespace gantry::nccl_api
