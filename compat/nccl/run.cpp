#include "compat/nccl/run.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "compat/nccl/program_order.hpp"
#include "compat/nccl/types/data_type.hpp"

namespace gantry::nccl_api {

namespace {

// The most messages that Communicator::group() takes.
constexpr std::size_t kMostMessages = 512;

bool reduces(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::reduce ||
         kind == OperationKind::reduce_scatter;
}

// The current stream of consecutive messages, which mostly have one stream.
class MessageStream {
 public:
  explicit MessageStream(Device device) : device_(device) {}

  void use(void* stream) {
    if (guard_ && stream == handle_) return;
    order_later_work(stream, device_);
    guard_.reset();
    guard_.emplace(Stream::external(stream, device_));
    handle_ = stream;
  }

 private:
  Device device_;
  void* handle_ = nullptr;
  std::optional<StreamGuard> guard_;
};

// Sends and receives, alone or into the open group() of this thread.
void run_message(const Communicator& group, const Rank& rank, const KnownOperation& operation,
                 MessageStream& stream) {
  const Operation& call = operation.call;
  stream.use(call.stream);
  const auto array = [&](const Tensor& known) {
    return known.defined()
               ? known
               : empty({0}, {.dtype = data_type(call.type).moved_as, .device = rank.device});
  };
  if (call.kind == OperationKind::send) {
    group.send(array(operation.arrays.send), call.peer);
  } else {
    group.recv(array(operation.arrays.recv), call.peer);
  }
}

using Messages = std::vector<const KnownOperation*>;

// The copies around messages whose arrays are in memory of the host.
void copy_in(std::span<const KnownOperation* const> messages, MessageStream& stream) {
  for (const KnownOperation* message : messages) {
    if (!message->host) continue;
    stream.use(message->call.stream);
    message->host->copy_in();
  }
}
void copy_out(std::span<const KnownOperation* const> messages, MessageStream& stream) {
  for (const KnownOperation* message : messages) {
    if (!message->host) continue;
    stream.use(message->call.stream);
    message->host->copy_out();
  }
}

// Messages in the order of a rank's calls, in parts that Communicator::group() takes. Each part has
// the next few messages of each pair of ranks and direction, so all ranks make equal parts.
std::vector<Messages> parts_of(Messages messages, int ranks) {
  if (messages.size() <= kMostMessages) return {std::move(messages)};
  const std::size_t each =
      std::max<std::size_t>(1, kMostMessages / 2 / static_cast<std::size_t>(ranks));
  std::map<std::pair<OperationKind, int>, std::size_t> seen;
  std::vector<Messages> parts;
  for (const KnownOperation* message : messages) {
    const std::size_t part = seen[{message->call.kind, message->call.peer}]++ / each;
    if (parts.size() <= part) parts.resize(part + 1);
    parts[part].push_back(message);
  }
  return parts;
}

}  // namespace

KnownOperation::KnownOperation(const Rank& rank, const Operation& operation)
    : call(operation), arrays(arrays_of(rank, operation)) {
  if (HostArrays::has_any(arrays)) host.emplace(call, arrays, rank.device);
}

CollectiveRun::CollectiveRun(const Rank& rank, Communicator group, const KnownOperation& operation)
    : rank_(rank),
      known_(operation),
      call_(operation.call),
      group_(std::move(group)),
      stream_(Stream::external(call_.stream, rank.device)) {}

void CollectiveRun::prepare() {
  if (call_.count == 0) return;  // as NCCL, which does not ask other ranks either
  order_later_work(call_.stream, rank_.device);
  if (known_.host) {
    const StreamGuard guard(stream_);
    known_.host->copy_in();
  }
  if (reduces(call_.kind)) {
    reduction_.emplace(rank_, call_, known_.arrays, stream_);
    input_ = reduction_->input();
    output_ = reduction_->output(input_);
    return;
  }
  input_ = known_.arrays.send;
  output_ = known_.arrays.recv;
}

void CollectiveRun::submit() {
  if (call_.count == 0) return;
  const StreamGuard guard(stream_);
  switch (call_.kind) {
    case OperationKind::all_reduce:
      group_.all_reduce(output_, input_, reduction_->op());
      break;
    case OperationKind::reduce:
      group_.reduce(output_, input_, call_.peer, reduction_->op());
      break;
    case OperationKind::reduce_scatter:
      group_.reduce_scatter(output_, input_, reduction_->op());
      break;
    default:
      submit_move();
      break;
  }
}

void CollectiveRun::submit_move() {
  switch (call_.kind) {
    case OperationKind::broadcast:
      group_.broadcast(output_, input_, call_.peer);
      break;
    case OperationKind::all_gather:
      group_.all_gather(output_, input_);
      break;
    case OperationKind::gather:
      group_.gather(output_, input_, call_.peer);
      break;
    case OperationKind::scatter:
      group_.scatter(output_, input_, call_.peer);
      break;
    default:
      group_.all_to_all(output_, input_);
      break;
  }
}

void CollectiveRun::complete() {
  if (reduction_) reduction_->complete(output_);
  if (known_.host && call_.count > 0) {
    const StreamGuard guard(stream_);
    known_.host->copy_out();
  }
}

void run(const Rank& rank, const Operation& operation) {
  Communicator group = rank.group();  // its end is told before wrong memory
  const KnownOperation known(rank, operation);
  if (operation.is_message()) {
    MessageStream stream(rank.device);
    const KnownOperation* const one = &known;
    copy_in({&one, 1}, stream);
    run_message(group, rank, known, stream);
    return copy_out({&one, 1}, stream);
  }
  CollectiveRun collective(rank, std::move(group), known);
  collective.prepare();
  collective.submit();
  collective.complete();
}

void run_messages(const Rank& rank, std::span<const KnownOperation> operations) {
  Messages messages;
  for (const KnownOperation& one : operations) {
    if (one.call.is_message()) messages.push_back(&one);
  }
  if (messages.empty()) return;
  const Communicator group = rank.group();
  for (const Messages& part : parts_of(std::move(messages), rank.size)) {
    MessageStream stream(rank.device);
    copy_in(part, stream);
    MessageGroup together = group.group();
    for (const KnownOperation* message : part) run_message(group, rank, *message, stream);
    (void)together.end();
    copy_out(part, stream);
  }
}

}  // namespace gantry::nccl_api
