// Sends and receives of a communicator, single and in groups.

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/communicator/call_options.hpp"
#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/multi_gpu/extents.hpp"
#include "collectives/traced_collective.hpp"
#include "collectives/transport.hpp"
#include "streams/sanitizer/hooks.hpp"
#include "tensor/overlap.hpp"

namespace gantry {

std::shared_ptr<Communicator::OpenMessages> Communicator::OpenMessages::List::mine() const {
  if (!has_open_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(open_, std::this_thread::get_id(),
                                       [](const auto& group) { return group->thread; });
  return found != open_.end() ? *found : nullptr;
}

void Communicator::OpenMessages::List::open(std::shared_ptr<OpenMessages> group) {
  if (const auto other = mine()) {
    throw InvalidArgument(fmt::format(
        "group: expected no open group of this communicator on this thread, but got one "
        "with {} message(s)",
        other->messages.size()));
  }
  const std::lock_guard lock(mutex_);
  open_.push_back(std::move(group));
  has_open_.store(true, std::memory_order_release);
}

void Communicator::OpenMessages::List::close(const OpenMessages& group) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const auto& open) { return open.get() == &group; });
  has_open_.store(!open_.empty(), std::memory_order_release);
}

void Communicator::OpenMessages::List::require_none(CollectiveKind kind) const {
  const auto open = mine();
  if (open == nullptr) return;
  throw InvalidArgument(
      fmt::format("{}: expected send, recv or send_recv inside group(), but got {} after {} "
                  "message(s); end the group first",
                  gantry::name(kind), gantry::name(kind), open->messages.size()));
}

void Communicator::OpenMessages::List::fail_next(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  has_failure_.store(true, std::memory_order_release);
}

void Communicator::OpenMessages::List::raise_failure() {
  if (!has_failure_.load(std::memory_order_acquire)) return;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(mutex_);
    has_failure_.store(false, std::memory_order_release);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

Work Communicator::send(const Tensor& tensor, int destination, CollectiveOptions options) const {
  const Membership& me = impl("send").members.self;
  require_tensor(tensor, me.device, "send", "tensor");
  return post({CollectiveKind::send, tensor, destination, options, Stream::current(me.device)});
}

Work Communicator::recv(const Tensor& tensor, int source, CollectiveOptions options) const {
  const Membership& me = impl("recv").members.self;
  require_tensor(tensor, me.device, "recv", "tensor");
  require_writable(tensor, "recv", "tensor");
  return post({CollectiveKind::recv, tensor, source, options, Stream::current(me.device)});
}

// The call of a message, with its options. Throws: InvalidArgument.
CollectiveCall Communicator::call_of(const Message& message) const {
  CollectiveCall call{.what = {.count = message.tensor.numel(),
                               .root = message.peer,
                               .kind = message.kind,
                               .dtype = message.tensor.dtype()}};
  set_options(call, message.options, gantry::name(message.kind));
  impl_->transports.require_served(call);
  return call;
}

// Adds the message to this thread's open group, else submits it.
Work Communicator::post(const Message& message) const {
  const bool sends = message.kind == CollectiveKind::send;
  if (const auto open = impl_->open_messages.mine()) {
    require_rank(message.peer, size(), gantry::name(message.kind),
                 sends ? "destination" : "source");
    if (open->messages.size() >= protocol::kMostMessages) {
      throw InvalidArgument(
          fmt::format("{}: expected at most {} messages in one group(), but got "
                      "one more",
                      gantry::name(message.kind), protocol::kMostMessages));
    }
    (void)call_of(message);
    open->messages.push_back(message);
    return Work(open->state);
  }
  require_peer(message.peer, rank(), size(), gantry::name(message.kind));
  CollectiveCall call = call_of(message);
  return move_between(call, sends ? nullptr : &message.tensor, sends ? &message.tensor : nullptr,
                      message.options);
}

Work Communicator::send_recv(const Tensor& out, int to, const Tensor& in, int from,
                             CollectiveOptions options) const {
  Impl& mine = impl("send_recv");
  const Membership& me = mine.members.self;
  require_tensor(out, me.device, "send_recv", "out");
  require_tensor(in, me.device, "send_recv", "in");
  require_writable(in, "send_recv", "in");
  require_rank(to, me.size, "send_recv", "to");
  require_rank(from, me.size, "send_recv", "from");
  const Stream stream = Stream::current(me.device);
  std::vector<Message> both{{CollectiveKind::send, out, to, options, stream},
                            {CollectiveKind::recv, in, from, options, stream}};
  if (mine.open_messages.mine() == nullptr) {
    return exchange("send_recv", std::move(both), std::make_shared<Work::State>());
  }
  (void)post(both[0]);
  return post(both[1]);
}

MessageGroup Communicator::group() const {
  Impl& mine = impl("group");
  auto open = std::make_shared<OpenMessages>();
  open->thread = std::this_thread::get_id();
  open->state = std::make_shared<Work::State>();
  open->state->device = device();
  open->state->is_open = true;
  mine.open_messages.open(open);
  return MessageGroup(*this, std::move(open));
}

namespace {

// Matches the k-th message to this rank itself with its k-th receive. Returns their indices.
template <class Messages>
std::vector<std::pair<std::size_t, std::size_t>> pair_own(const Messages& messages, int rank) {
  std::vector<std::size_t> sends;
  std::vector<std::size_t> receives;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].peer != rank) continue;
    (messages[i].kind == CollectiveKind::send ? sends : receives).push_back(i);
  }
  if (sends.size() != receives.size()) {
    throw InvalidArgument(
        fmt::format("group: expected as many receives as sends between rank {} and itself, but got "
                    "{} and {}",
                    rank, receives.size(), sends.size()));
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t k = 0; k < sends.size(); ++k) {
    const Tensor& sent = messages[sends[k]].tensor;
    const Tensor& received = messages[receives[k]].tensor;
    if (sent.dtype() != received.dtype() || sent.numel() != received.numel()) {
      throw InvalidArgument(fmt::format(
          "group: expected a recv of what is sent, but rank {} sends {}[{}] to itself and receives "
          "{}[{}]",
          rank, gantry::name(sent.dtype()), sent.numel(), gantry::name(received.dtype()),
          received.numel()));
    }
    pairs.emplace_back(sends[k], receives[k]);
  }
  return pairs;
}

}  // namespace

// Submits concurrent messages and completes their shared `state`.
Work Communicator::exchange(std::string_view op, std::vector<Message> messages,
                            std::shared_ptr<Work::State> state) const {
  TracedCollective traced(op, size());
  const Membership& me = impl_->members.self;
  state->device = me.device;
  const auto own = pair_own(messages, me.rank);
  const auto is_receive = [](const Message& one) { return one.kind == CollectiveKind::recv; };
  for (const Message& one : messages) (void)call_of(one);
  comm::SortedExtents receives;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_receive(messages[i])) receives.add(messages[i].tensor, i);
  }
  receives.sort();
  if (receives.find_shared()) {
    throw InvalidArgument(
        "group: expected receives into memory of their own, but two of them share some");
  }
  const auto is_received_into = [&](const Tensor& tensor) {
    return receives.any_shared(tensor, [](std::size_t, detail::Overlap) { return true; });
  };
  const Stream stream = messages.empty() ? Stream::current(me.device) : messages.front().stream;
  std::vector<Stream> others;
  for (const Message& one : messages) {
    const auto same = [&](const Stream& known) { return known.id() == one.stream.id(); };
    if (same(stream) || std::any_of(others.begin(), others.end(), same)) continue;
    others.push_back(one.stream);
  }
  for (const Stream& other : others) stream.wait(other);
  const StreamGuard guard(stream);

  std::vector<Tensor> dense;
  dense.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Tensor& tensor = messages[i].tensor;
    const bool is_source = !is_receive(messages[i]) && is_received_into(tensor);
    dense.push_back(is_source ? tensor.clone() : tensor.contiguous());
  }
  std::vector<CollectiveCall> calls;
  calls.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& one = messages[i];
    if (one.peer == me.rank) continue;
    CollectiveCall& call = calls.emplace_back(call_of(one));
    (is_receive(one) ? call.out : const_cast<void*&>(call.in)) = dense[i].data();
    if (dense[i].nbytes() < static_cast<std::size_t>(kLeastOpenBytes)) continue;
    call.is_open = dense[i].storage().is_peer_accessible();
    if (!is_receive(one)) call.in_block = dense[i].storage().block();
  }
  traced.note_messages(calls);
  std::vector<sanitizer::Use> uses;
  if (sanitizer::is_on()) [[unlikely]] {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      uses.push_back({dense[i], is_receive(messages[i])});
    }
    sanitizer::follow_queue(impl_.get(), stream);
  }
  sanitizer::Submission checked("group", stream, uses);
  {
    const std::lock_guard lock(impl_->mutex);
    const sanitizer::Suspension parts;
    if (!calls.empty()) {
      End end = impl_->run_together(calls, stream);
      traced.note_messages(calls);  // with their numbers
      state->done = std::move(end.event);
      state->ledger = impl_->shared_ledger();
      state->first_call = static_cast<std::uint64_t>(calls.front().what.call);
      state->last_call = static_cast<std::uint64_t>(calls.back().what.call);
      state->reports_losses = end.reports_losses;
    }
  }
  checked.commit();
  if (sanitizer::is_on()) [[unlikely]] {
    sanitizer::lead_queue(impl_.get(), stream);
  }
  bool is_more = calls.empty() || state->done == nullptr;
  for (const auto& [sent, received] : own) {
    dense[received].view(dense[sent].sizes()).copy_(dense[sent]);
    is_more = true;
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_receive(messages[i]) || messages[i].tensor.is_contiguous()) continue;
    Tensor(messages[i].tensor).copy_(dense[i]);
    is_more = true;
  }
  if (is_more || driver().is_capturing(stream.native())) state->mark_end(stream);
  for (const Stream& other : others) other.wait(stream);
  return Work(std::move(state));
}

MessageGroup::MessageGroup(const Communicator& communicator,
                           std::shared_ptr<Communicator::OpenMessages> open)
    : communicator_(communicator),
      open_(std::move(open)),
      exceptions_(std::uncaught_exceptions()) {}

Work MessageGroup::end() {
  if (open_ == nullptr) {
    throw InvalidArgument("group: expected an open group, but got one that has ended");
  }
  if (open_->thread != std::this_thread::get_id()) {
    throw InvalidArgument(
        "group: expected the thread that opened the group to end it, but got another one");
  }
  const auto open = std::exchange(open_, nullptr);
  communicator_.impl_->open_messages.close(*open);
  open->state->is_open = false;
  try {
    return communicator_.exchange("group", std::move(open->messages), open->state);
  } catch (...) {
    open->state->done = nullptr;
    open->state->failure = std::current_exception();
    throw;
  }
}

MessageGroup::~MessageGroup() {
  if (open_ == nullptr) return;
  const auto impl = communicator_.impl_;
  const auto open = open_;
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      impl->open_messages.close(*open);
      open->state->is_open = false;
      open->state->failure = std::make_exception_ptr(Error(fmt::format(
          "group: failed to submit {} message(s): an exception left the scope of the group",
          open->messages.size())));
      return;
    }
    (void)end();
  } catch (const std::exception& error) {
    impl->open_messages.close(*open);
    impl->open_messages.fail_next(std::current_exception());
    logging::warn(fmt::format("group: {}; end() throws it", error.what()));
  }
}

}  // namespace gantry
