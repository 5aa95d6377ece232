#include <gantry/collectives/channel.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/communicator/impl.hpp"
#include "collectives/communicator/pending_signals.hpp"
#include "collectives/p2p/registrations.hpp"
#include "collectives/protocol/launch.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "job/flight_file.hpp"
#include "kernels/op_scope.hpp"
#include "kernels/signal_memory.hpp"
#include "streams/graphs/condition.hpp"
#include "streams/sanitizer/hooks.hpp"

namespace gantry {

namespace {

// Reports of aborted signals differ from those of operations, which count from 0.
constexpr std::uint32_t kFirstSequence = 1U << 29;

// The facts that must be equal on all ranks.
std::string layout_of(const Tensor& tensor) {
  return fmt::format("{} [{}] with strides [{}] at element {}", name(tensor.dtype()),
                     fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", "),
                     tensor.storage_offset());
}

}  // namespace

// The memory and the pads of one window on this rank.
class Window::State final : public detail::PeerUse, public std::enable_shared_from_this<State> {
 public:
  // Collective.
  State(const Communicator& group, const Tensor& tensor)
      : communicator_(group),
        group_(*group.impl_),
        tensor_(tensor),
        memory_(group_.members.self.rank, group_.members.self.device),
        signals_(std::make_shared<PendingSignals>(
            device(), group_.members.timeout,
            [weak = group_.weak_from_this()](int peer, bool sends, const auto& text) {
              const auto group = weak.lock();
              if (!group) return;
              group->members.control->mark_late(
                  peer, text, "signal", sends ? flight::kLateToReceive : flight::kLateToSend);
            })) {
    agree(make_pad());
    Bootstrap& bootstrap = *group_.members.bootstrap;
    memory_.add(bootstrap, tensor_.storage(), "window");
    memory_.add(bootstrap, words_.storage(), "window");
    const std::uint64_t data = memory_.find(tensor_.data(), 0);
    for (int rank = 0; rank < size(); ++rank) pointers_.push_back(memory_.address(data, rank));
    const std::uint64_t counts = memory_.find(words_.data_ptr<std::int64_t>() + pad_.numel(), 0);
    for (int rank = 0; rank < size(); ++rank) counts_.push_back(memory_.address(counts, rank));
    for (const Tensor* tensor : {&tensor_, &words_}) {
      const Storage& storage = tensor->storage();
      const std::uint64_t at = memory_.find(storage.data(), 0);
      for (int rank = 0; rank < size(); ++rank) {
        signal_memory_.emplace_back(memory_.address(at, rank), storage.bytes());
      }
    }
    // Ranks of one process use it in the order of signals.
    unchecked_tensor_.emplace(tensor_.storage().data(), tensor_.storage().bytes());
    unchecked_words_.emplace(words_.storage().data(), words_.storage().bytes());
  }

  int rank() const { return group_.members.self.rank; }
  int size() const { return group_.members.self.size; }
  Device device() const { return group_.members.self.device; }
  const Communicator& communicator() const { return communicator_; }
  const std::vector<void*>& pointers() const { return pointers_; }
  const std::shared_ptr<PendingSignals>& signals() const { return signals_; }
  PeerView view() const;

  void require_stream(const Stream& stream, std::string_view op) const {
    if (stream.device() == device()) return;
    throw InvalidArgument(fmt::format("{}: expected a stream of {}, but got one of {}", op,
                                      device().str(), stream.device().str()));
  }

  // `mine` or its counterpart in the memory of `rank`, which stays open while the tensor lives.
  Tensor tensor_of(int rank, const Tensor& mine) {
    if (rank == this->rank()) return mine;
    const std::uint64_t at = memory_.find(mine.storage().data(), 0);
    Storage storage =
        Storage::foreign(memory_.address(at, rank), mine.storage().bytes(), device(),
                         [self = shared_from_this()](void*) mutable { self.reset(); });
    return Tensor::from_storage(std::move(storage), mine.sizes(), mine.strides(),
                                mine.storage_offset(), mine.dtype());
  }
  const Tensor& tensor() const { return tensor_; }
  const Tensor& pad() const { return pad_; }

  void check(const char* op, const Stream& stream) const override {
    require_stream(stream, op);
    if (group_.members.control) group_.members.control->require_intact();
    if (!is_in_condition(stream)) return;
    Communicator::Impl::require_body_stream(op, stream);
    group_.note_in_condition(stream, /*is_collective=*/false);
  }
  void record(const Stream& stream) const override {
    tensor_.record_use(stream);
    words_.record_use(stream);
    memory_.record_stream(stream);
  }

  // Enqueues a signal to `peer`, or the wait for one of it.
  void pass_signal(int peer, const Stream& stream, int channel, bool sends, std::string_view op) {
    const kernels::OpScope scope(op);
    require_rank(peer, size(), op);
    if (peer == rank()) {
      throw InvalidArgument(fmt::format("{}: expected another rank than this one, {}", op, peer));
    }
    if (channel < 0 || channel >= kChannels) {
      throw InvalidArgument(fmt::format("{}: expected a channel from 0 to {}, but got {}", op,
                                        kChannels - 1, channel));
    }
    require_stream(stream, op);
    group_.members.control->require_intact();
    const bool in_condition = is_in_condition(stream);
    if (in_condition) Communicator::Impl::require_body_stream(op, stream);
    const std::int64_t at = std::int64_t{channel} * size() + (sends ? rank() : peer);
    const std::uint64_t word = memory_.find(pad_.data_ptr<std::int64_t>() + at, sizeof(at));
    const std::lock_guard lock(mutex_);
    protocol::PeerSignal plan;
    plan.word = reinterpret_cast<std::uint64_t*>(memory_.address(word, sends ? peer : rank()));
    plan.words = group_.members.control->device_words();
    plan.call = flight::kMessageBit;
    plan.sequence = ++sequence_;
    plan.peer = peer;
    plan.awaited = sends ? 0 : 1;
    pad_.record_stream(stream);
    memory_.record_stream(stream);
    if (driver().is_capturing(stream.native())) {
      protocol::launch<protocol::kernel::peer_signal>(plan, 1, stream);
      if (in_condition) group_.note_in_condition(stream, /*is_collective=*/false);
      return;
    }
    signals_->begin(stream, peer, sends,
                    fmt::format("rank {}: {}({}) on channel {}", rank(), op, peer, channel));
    protocol::launch<protocol::kernel::peer_signal>(plan, 1, stream);
    signals_->end(stream);
  }

 private:
  // Returns why this rank cannot take part; empty: it can.
  std::string make_pad() noexcept {
    try {
      require_tensor(tensor_, device(), "window", "tensor");
      const std::int64_t pad = std::int64_t{kChannels} * size();
      const auto counts = static_cast<std::int64_t>(PeerView::words_for(size()));
      words_ = zeros({pad + counts}, {.dtype = DType::i64, .device = device()});
      pad_ = words_.narrow(0, 0, pad).view({kChannels, size()});
      // Other ranks may signal as soon as they have the pad.
      const BlockingIsNeeded needed;
      Stream::current(device()).synchronize();
      return {};
    } catch (const std::exception& error) {
      failure_ = std::current_exception();
      return error.what();
    }
  }

  // Throws on all ranks if one of them cannot take part, or has another tensor.
  void agree(const std::string& problem) {
    const std::string mine = problem.empty() ? "+" + layout_of(tensor_) : "-" + problem;
    const std::vector<std::string> all = group_.members.bootstrap->all_gather(mine);
    if (failure_) std::rethrow_exception(failure_);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].starts_with('-')) {
        throw InvalidArgument(
            fmt::format("window: rank {} could not take part: {}", rank, all[rank].substr(1)));
      }
      if (all[rank] == all[0]) continue;
      throw InvalidArgument(
          fmt::format("window: expected one dtype, shape and layout on all ranks, but rank 0 has "
                      "{} and rank {} has {}",
                      all[0].substr(1), rank, all[rank].substr(1)));
    }
  }

  Communicator communicator_;
  Communicator::Impl& group_;
  Tensor tensor_;
  Tensor words_;  // the pad, and the counts of views
  Tensor pad_;
  Registrations memory_;
  std::vector<void*> pointers_;
  std::vector<void*> counts_;                        // of views, by rank
  std::deque<kernels::SignalMemory> signal_memory_;  // of all ranks
  std::optional<sanitizer::UncheckedMemory> unchecked_tensor_;
  std::optional<sanitizer::UncheckedMemory> unchecked_words_;
  std::exception_ptr failure_;
  std::shared_ptr<PendingSignals> signals_;
  std::mutex mutex_;  // guards the following member, and the order of signals
  std::uint32_t sequence_ = kFirstSequence;
};

PeerView Window::State::view() const {
  static_assert(PeerView::kMaxRanks == kMaxRanks && detail::kClaimedFault == kFaultClaimed &&
                detail::kAbortedFault == fault_word(OperationFault::aborted, 0) &&
                detail::kFaultOfMessage == flight::kMessageBit);
  PeerView view;
  view.rank_ = rank();
  view.size_ = size();
  for (int rank = 0; rank < size(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    view.data_[rank] = pointers_[at];
    view.words_[rank] = static_cast<std::uint64_t*>(counts_[at]);
  }
  if (group_.members.control) {
    DeviceWords& words = *group_.members.control->device_words();
    view.host_ = {.abort = &words.abort,
                  .fault = &words.fault,
                  .fault_call = &words.fault_call,
                  .fault_peer = &words.fault_peer,
                  .awaited = words.awaited};
  }
  return view;
}

Window Communicator::window(const Tensor& tensor) const {
  Impl& mine = impl("window");
  const std::lock_guard lock(mine.mutex);
  mine.rendezvous(HostCall::window);
  if (size() > 1 && mine.transports.p2p() == nullptr) {
    throw NotSupported(
        fmt::format("window: expected ranks that reach each other's memory, but the transport "
                    "between them is '{}'",
                    transport()),
        device().str());
  }
  auto state = std::make_shared<Window::State>(*this, tensor);
  std::erase_if(mine.window_signals, [](const auto& signals) {
    return signals.use_count() == 1 && !signals->is_waiting();
  });
  mine.window_signals.push_back(state->signals());
  return Window(std::move(state));
}

Window::State& Window::state(std::string_view member) const {
  if (state_) return *state_;
  throw InvalidArgument(
      fmt::format("Window::{}: expected a window, but got an undefined one", member));
}

std::shared_ptr<const detail::PeerUse> peer_use(const Window& window) {
  (void)window.state("uses");
  return window.state_;
}

int Window::rank() const { return state("rank").rank(); }
int Window::size() const { return state("size").size(); }

Tensor Window::peer(int rank) const {
  State& mine = state("peer");
  require_rank(rank, mine.size(), "peer");
  return mine.tensor_of(rank, mine.tensor());
}

const std::vector<void*>& Window::peer_pointers() const {
  return state("peer_pointers").pointers();
}

Tensor Window::signal_pad() const { return state("signal_pad").pad(); }

Tensor Window::signal_pad(int rank) const {
  State& mine = state("signal_pad");
  require_rank(rank, mine.size(), "signal_pad");
  return mine.tensor_of(rank, mine.pad());
}

void Window::barrier(const Stream& stream) const {
  State& mine = state("barrier");
  mine.require_stream(stream, "barrier");
  const StreamGuard guard(stream);
  (void)mine.communicator().barrier();
}

void Window::barrier() const { barrier(Stream::current(state("barrier").device())); }

void Window::put_signal(int rank, const Stream& stream, int channel) const {
  state("put_signal").pass_signal(rank, stream, channel, /*sends=*/true, "put_signal");
}

void Window::put_signal(int rank, int channel) const {
  put_signal(rank, Stream::current(state("put_signal").device()), channel);
}

void Window::wait_signal(int rank, const Stream& stream, int channel) const {
  state("wait_signal").pass_signal(rank, stream, channel, /*sends=*/false, "wait_signal");
}

void Window::wait_signal(int rank, int channel) const {
  wait_signal(rank, Stream::current(state("wait_signal").device()), channel);
}

PeerView Window::view() const { return state("view").view(); }

}  // namespace gantry
