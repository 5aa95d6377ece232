#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/extend/driver.hpp>

#include "collectives/control/operation_deadlines.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/hierarchical/rank_ordered.hpp"
#include "collectives/nccl/comm.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/operation_queue.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/slices.hpp"
#include "collectives/transport.hpp"
#include "core/processes/suspend_aware_timeout.hpp"
#include "job/flight_file.hpp"

namespace gantry {

namespace {

cudaStream_t cuda_stream(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

// Reports losses in the fault words, as gantry's kernels do; NCCL's kernels do not.
NcclComm::ReportLoss loss_reporter(const ControlSegment* control) {
  if (control == nullptr) return [](std::uint64_t) {};
  return [file = control->file(), rank = control->rank()](std::uint64_t call) {
    auto& words = reinterpret_cast<DeviceWords&>(file->view().words(rank));
    FaultWords(words).report_loss(call);
  };
}

// Makes NCCL's asynchronous error the error of an operation.
std::function<std::exception_ptr(const std::string&)> as_exceptions(
    std::function<std::string()> find_error) {
  return [find_error = std::move(find_error)](const std::string& text) -> std::exception_ptr {
    const std::string error = find_error();
    if (error.empty()) return nullptr;
    return std::make_exception_ptr(NcclError(fmt::format("{}: failed: {}", text, error)));
  };
}

// NCCL takes seconds to start on some machines.
constexpr auto kLeastStartTimeout = std::chrono::seconds(60);
// A rank that has started may leave before the others have started.
constexpr auto kStartDelay = std::chrono::seconds(5);

[[noreturn]] void throw_late_start(std::chrono::milliseconds timeout) {
  throw TimeoutError(fmt::format("NCCL has not started within {} s: does a rank not come to it?",
                                 timeout.count() / 1000));
}

// Makes the check for lost or late ranks while NCCL starts.
NcclComm::CheckPeers start_check(const ControlSegment* control, std::chrono::milliseconds timeout) {
  timeout = std::max<std::chrono::milliseconds>(timeout, kLeastStartTimeout);
  return [control, timeout, countdown = SuspendAwareTimeout(timeout),
          delay = SuspendAwareTimeout(kStartDelay)]() mutable {
    if (control != nullptr) control->require_intact();
    // A rank that failed leaves, which only this check detects.
    if (control != nullptr && delay.has_expired()) control->check_peers(control->last_fence() + 1);
    if (countdown.has_expired()) throw_late_start(timeout);
  };
}

void require_platform() {
  if (nccl_takes_this_platform()) return;
  throw NotSupported(
      "Communicator::world: ranks on several machines need NCCL, which needs real GPUs");
}

class NcclTransport final : public Transport {
 public:
  // As make_watched_nccl_transport().
  NcclTransport(const Membership& membership, Bootstrap& bootstrap,
                const NcclComm::CheckPeers& check_start)
      : rank_(membership.rank),
        size_(membership.size),
        device_(membership.device),
        comm_(membership, bootstrap, loss_reporter(nullptr), check_start),
        runs_(comm_.word(1)),
        queue_(device_.index) {}
  NcclTransport(const Membership& membership, Bootstrap& bootstrap, ControlSegment* control,
                bool reports_progress, GroupTimeout timeout)
      : rank_(membership.rank),
        size_(membership.size),
        device_(membership.device),
        bootstrap_(&bootstrap),
        control_(control),
        comm_(membership, bootstrap, loss_reporter(control),
              start_check(control, timeout.of_group())),
        runs_(comm_.word(1)),
        queue_(device_.index),
        reports_progress_(reports_progress && control != nullptr) {
    if (reports_progress_) {
      const DeviceGuard guard(device_);
      protocol::kernel::progress_report::preload();
    }
    if (control_ != nullptr) {
      control_->on_loss([this] { comm_.abort(); });
    } else {
      deadlines_.emplace(
          device_.index, std::move(timeout),
          OperationDeadlines::Actions{
              .find_error = as_exceptions(comm_.error_finder()),
              .on_failure = comm_.failer(),
              .cause = "NCCL waits for a rank that does not come to it, and cannot tell which"});
    }
  }
  ~NcclTransport() override {
    if (control_ != nullptr) control_->on_loss(nullptr);
  }

  std::string_view name() const override { return "nccl"; }

  End run(const ResolvedCall& call, const Stream& stream) override {
    enter(call);
    return enqueue({&call, 1}, stream, [&](ncclComm_t comm) {
      if (call.is_uneven()) return exchange_slices(call, comm, cuda_stream(stream));
      if (can_serve(Algorithm::nccl, call.what, 0)) return submit(call, comm, cuda_stream(stream));
      const auto moves = [&](std::span<const ResolvedCall> messages) {
        exchange(messages, comm, cuda_stream(stream));
      };
      reduce_in_rank_order(call, {rank_, size_, device_}, stream, moves);
    });
  }
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    return enqueue(messages, stream,
                   [&](ncclComm_t comm) { exchange(messages, comm, cuda_stream(stream)); });
  }

  bool is_waiting() const override { return comm_.is_waiting(); }
  std::string asynchronous_error() const override { return comm_.error_finder()(); }
  bool uses_nccl() const override { return true; }
  void abort() noexcept override { comm_.abort(); }
  void await_abort() noexcept override { comm_.await_abort(); }
  void require_intact() const override { comm_.require_intact(); }

 private:
  // Enqueues the work of `submit` between the progress reports of `calls`: one collective, or
  // messages, of which the first of each direction is reported.
  template <class Submit>
  End enqueue(std::span<const ResolvedCall> calls, const Stream& stream, Submit submit) {
    const DeviceGuard guard(device_);
    End end{.event = nullptr, .reports_losses = false};
    std::vector<Descriptor> reported;
    for (const ResolvedCall& call : calls) {
      const auto same = [&](const Descriptor& other) { return other.kind == call.what.kind; };
      if (reports_progress_ && std::none_of(reported.begin(), reported.end(), same))
        reported.push_back(call.what);
    }
    const auto report_all = [&](bool begins) {
      for (const Descriptor& what : reported) report_progress(what, stream, begins);
    };
    try {
      const auto newest = static_cast<std::uint64_t>(calls.back().what.call);
      comm_.enqueue(newest, stream, [&](ncclComm_t comm) {
        if (!reports_progress_) {
          const bool has_deadline = deadlines_ && !driver().is_capturing(stream.native());
          if (has_deadline)
            deadlines_->begin(stream, newest, text_of(calls.back().what), calls.back().timeout);
          submit(comm);
          if (has_deadline) deadlines_->end(stream);
          return;
        }
        queue_.enter(stream);
        report_all(/*begins=*/true);
        comm_.require_intact();  // The launch may have blocked for long.
        try {
          submit(comm);
        } catch (const NcclError&) {
          comm_.require_intact();
          report_all(/*begins=*/false);
          throw;
        }
        comm_.require_intact();
        report_all(/*begins=*/false);
        end.event = queue_.leave(stream);
      });
    } catch (const NcclError&) {
      if (control_ != nullptr) control_->await_diagnosis();
      throw;
    }
    return end;
  }

  std::string text_of(const Descriptor& what) const {
    return fmt::format("collective: rank {}: #{} {} over NCCL", rank_,
                       flight::plain_number(static_cast<std::uint64_t>(what.call)), what.str());
  }

  // On one machine, compares calls and detects missing ranks before NCCL could hang. Sends and
  // receives only involve two ranks, so they are not compared.
  void enter(const CollectiveCall& call) {
    if (is_message(call.what.kind)) return;
    if (control_ != nullptr) {
      const auto number = static_cast<std::uint64_t>(call.what.call);
      control_->rendezvous(HostCall::none, number, call.timeout);
      control_->verify(number);
    } else if (call.is_uneven() && bootstrap_ != nullptr) {
      verify_blocks(call);
    }
  }

  // A receiver that expects more than its sender sends would never end.
  void verify_blocks(const CollectiveCall& call) {
    std::vector<std::int64_t> mine(call.send_counts.begin(), call.send_counts.end());
    mine.insert(mine.end(), call.recv_counts.begin(), call.recv_counts.end());
    const std::size_t bytes = mine.size() * sizeof mine[0];
    bootstrap_->set_purpose(gantry::name(call.what.kind));
    std::vector<std::vector<std::int64_t>> counts;
    for (const std::string& row :
         bootstrap_->all_gather({reinterpret_cast<const char*>(mine.data()), bytes})) {
      counts.emplace_back(mine.size(), -1);
      if (row.size() == bytes) std::memcpy(counts.back().data(), row.data(), bytes);
    }
    const auto difference = compare_blocks(counts);
    if (!difference) return;
    const std::string text = call.what.str();
    throw CollectiveMismatch(difference->text(call.what.call, text),
                             {difference->from, difference->to}, {text, text});
  }

  // NCCL kernels report no progress. Kernels before and after them report it to the watchdog.
  void report_progress(const Descriptor& what, const Stream& stream, bool begins) {
    DeviceWords& words = *control_->device_words();
    const int direction = what.kind == CollectiveKind::recv ? 1 : 0;
    const bool is_message = gantry::is_message(what.kind);
    protocol::launch<protocol::kernel::progress_report>(
        {.started = is_message ? &words.message_started[direction] : &words.started,
         .finished = is_message ? &words.message_finished[direction] : &words.finished,
         .runs = runs_,
         .call = static_cast<std::uint64_t>(what.call),
         .begins = begins},
        1, stream);
  }

  void submit(const ResolvedCall& call, ncclComm_t comm, cudaStream_t on) {
    const auto count = static_cast<std::size_t>(call.what.count);
    const auto bytes = static_cast<std::size_t>(call.what.bytes());
    const int root = call.what.root;
    switch (call.what.kind) {
      case CollectiveKind::barrier:
        check_nccl(nccl().all_reduce(comm_.word(0), comm_.word(0), 1, ncclInt32, ncclSum, comm, on),
                   "ncclAllReduce", "passing a barrier");
        return;
      case CollectiveKind::all_reduce:
        check_nccl(nccl().all_reduce(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                     nccl_op(call.what.op, call.what.dtype), comm, on),
                   "ncclAllReduce", "reducing over all ranks");
        return;
      case CollectiveKind::reduce:
        check_nccl(nccl().reduce(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                 nccl_op(call.what.op, call.what.dtype), root, comm, on),
                   "ncclReduce", "reducing to one rank");
        return;
      case CollectiveKind::broadcast:
        check_nccl(nccl().broadcast(call.in != nullptr ? call.in : call.out,
                                    call.out != nullptr ? call.out : const_cast<void*>(call.in),
                                    bytes, ncclUint8, root, comm, on),
                   "ncclBroadcast", "broadcasting");
        return;
      case CollectiveKind::all_gather:
        check_nccl(nccl().all_gather(call.in, call.out, bytes, ncclUint8, comm, on),
                   "ncclAllGather", "gathering from all ranks");
        return;
      case CollectiveKind::reduce_scatter:
        check_nccl(nccl().reduce_scatter(call.in, call.out, count, nccl_dtype(call.what.dtype),
                                         nccl_op(call.what.op, call.what.dtype), comm, on),
                   "ncclReduceScatter", "reducing and scattering");
        return;
      case CollectiveKind::gather:
      case CollectiveKind::scatter:
      case CollectiveKind::all_to_all:
        exchange_slices(call, comm, on);
        return;
      case CollectiveKind::send:
      case CollectiveKind::recv:
        exchange({&call, 1}, comm, on);
        return;
    }
  }

  // Passes the messages that `name_all(send, receive)` names, side by side.
  template <class NameAll>
  static void pass_together(ncclComm_t comm, cudaStream_t on, NameAll name_all) {
    in_nccl_group("ncclSend, ncclRecv", "passing messages", nullptr, [&] {
      ncclResult_t failure = ncclSuccess;
      const auto send = [&](const void* in, const ByteSlice& slice, int peer) {
        if (slice.bytes == 0 || failure != ncclSuccess) return;
        failure = nccl().send(static_cast<const std::byte*>(in) + slice.at,
                              static_cast<std::size_t>(slice.bytes), ncclUint8, peer, comm, on);
      };
      const auto receive = [&](void* out, const ByteSlice& slice, int peer) {
        if (slice.bytes == 0 || failure != ncclSuccess) return;
        failure = nccl().recv(static_cast<std::byte*>(out) + slice.at,
                              static_cast<std::size_t>(slice.bytes), ncclUint8, peer, comm, on);
      };
      name_all(send, receive);
      return failure;
    });
  }

  // One message between every pair of ranks, most of which may be empty.
  void exchange_slices(const CollectiveCall& call, ncclComm_t comm, cudaStream_t on) const {
    pass_together(comm, on, [&](const auto& send, const auto& receive) {
      for_each_peer(call, rank_, size_, [&](int peer, const PeerSlices& slices) {
        send(call.in, slices.send, peer);
        receive(call.out, slices.receive, peer);
      });
    });
  }

  static void exchange(std::span<const ResolvedCall> messages, ncclComm_t comm, cudaStream_t on) {
    pass_together(comm, on, [&](const auto& send, const auto& receive) {
      for (const ResolvedCall& call : messages) {
        const ByteSlice whole{0, call.message_bytes};
        if (call.what.kind == CollectiveKind::send) {
          send(call.in, whole, call.what.root);
        } else {
          receive(call.out, whole, call.what.root);
        }
      }
    });
  }

  int rank_;
  int size_;
  Device device_;
  Bootstrap* bootstrap_ = nullptr;     // null: the caller compares the calls
  ControlSegment* control_ = nullptr;  // null between machines
  NcclComm comm_;
  std::uint64_t* runs_;   // the run counter of progress reports, in device memory
  OperationQueue queue_;  // one for all operations, as in NCCL
  bool reports_progress_ = false;
  std::optional<OperationDeadlines> deadlines_;  // without a control segment and a watching caller
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlSegment* control, bool reports_progress,
                                               GroupTimeout timeout) {
  require_platform();
  return std::make_unique<NcclTransport>(membership, bootstrap, control, reports_progress, timeout);
}

std::unique_ptr<Transport> make_watched_nccl_transport(const Membership& membership,
                                                       Bootstrap& bootstrap,
                                                       const std::function<void()>& check_start) {
  require_platform();
  const auto check = [&check_start, countdown = SuspendAwareTimeout(kLeastStartTimeout)]() mutable {
    check_start();
    if (countdown.has_expired()) throw_late_start(kLeastStartTimeout);
  };
  return std::make_unique<NcclTransport>(membership, bootstrap, check);
}

}  // namespace gantry
