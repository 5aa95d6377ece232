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
#include "collectives/nccl/check.hpp"
#include "collectives/nccl/comm.hpp"
#include "collectives/nccl/library.hpp"
#include "collectives/operation_queue.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/selector.hpp"
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

// Makes the check for lost or late ranks while NCCL starts.
NcclComm::CheckPeers start_check(const ControlSegment* control, std::chrono::milliseconds timeout) {
  timeout = std::max<std::chrono::milliseconds>(timeout, kLeastStartTimeout);
  return [control, timeout, countdown = SuspendAwareTimeout(timeout),
          delay = SuspendAwareTimeout(kStartDelay)]() mutable {
    if (control != nullptr) control->require_intact();
    // A rank that failed leaves, which only this check detects.
    if (control != nullptr && delay.has_expired()) control->check_peers(control->last_fence() + 1);
    if (!countdown.has_expired()) return;
    throw TimeoutError(fmt::format("NCCL has not started within {} s: does a rank not come to it?",
                                   timeout.count() / 1000));
  };
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(const Membership& membership, Bootstrap& bootstrap, ControlSegment* control,
                bool reports_progress, std::chrono::milliseconds timeout)
      : rank_(membership.rank),
        size_(membership.size),
        device_(membership.device),
        bootstrap_(bootstrap),
        control_(control),
        comm_(membership, bootstrap, loss_reporter(control), start_check(control, timeout)),
        runs_(comm_.word(1)),
        queue_(device_.index),
        reports_progress_(reports_progress && control != nullptr) {
    if (reports_progress_) {
      const DeviceGuard guard(device_);
      protocol::cuda::preload_progress_report();
    }
    if (control_ != nullptr) {
      control_->on_loss([this] { comm_.abort(); });
    } else {
      deadlines_.emplace(
          device_.index, timeout,
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

  bool supports(const Descriptor&) const override { return true; }

  End run(const ResolvedCall& call, const Stream& stream) override {
    enter(call);
    return enqueue({&call, 1}, stream, [&](ncclComm_t comm) {
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
          if (has_deadline) deadlines_->begin(stream, newest, text_of(calls.back().what));
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
      control_->rendezvous(HostCall::none, number);
      control_->verify(number);
    }
    if (call.is_uneven()) compare_blocks(call);
  }

  // A receiver that expects more than its sender sends would never end.
  void compare_blocks(const CollectiveCall& call) {
    const auto size = static_cast<std::size_t>(size_);
    std::vector<std::int64_t> mine(call.send_counts.begin(), call.send_counts.end());
    mine.insert(mine.end(), call.recv_counts.begin(), call.recv_counts.end());
    const std::size_t bytes = mine.size() * sizeof mine[0];
    bootstrap_.set_purpose(gantry::name(call.what.kind));
    const std::vector<std::string> all =
        bootstrap_.all_gather({reinterpret_cast<const char*>(mine.data()), bytes});
    // The elements that rank a sends to rank b (`end` 0), or receives from it (1).
    const auto count = [&](std::size_t a, std::size_t b, std::size_t end) {
      std::int64_t value = -1;
      const std::size_t at = (end * size + b) * sizeof value;
      if (all[a].size() == bytes) std::memcpy(&value, all[a].data() + at, sizeof value);
      return value;
    };
    for (std::size_t a = 0; a < size; ++a) {
      for (std::size_t b = 0; b < size; ++b) {
        if (count(a, b, 0) == count(b, a, 1)) continue;
        throw CollectiveMismatch(
            fmt::format("collective #{}: expected blocks of the sizes that the receiver expects, "
                        "but rank {} "
                        "sends {} elements to rank {}, which expects {}, in {}",
                        call.what.call, a, count(a, b, 0), b, count(b, a, 1), call.what.str()),
            {static_cast<int>(a), static_cast<int>(b)}, {call.what.str(), call.what.str()});
      }
    }
  }

  // NCCL kernels report no progress. Kernels before and after them report it to the watchdog.
  void report_progress(const Descriptor& what, const Stream& stream, bool begins) {
    DeviceWords& words = *control_->device_words();
    const int direction = what.kind == CollectiveKind::recv ? 1 : 0;
    const bool is_message = gantry::is_message(what.kind);
    protocol::launch_progress_report(
        {.started = is_message ? &words.message_started[direction] : &words.started,
         .finished = is_message ? &words.message_finished[direction] : &words.finished,
         .runs = runs_,
         .call = static_cast<std::uint64_t>(what.call),
         .begins = begins},
        stream);
  }

  void submit(const CollectiveCall& call, ncclComm_t comm, cudaStream_t on) {
    const auto count = static_cast<std::size_t>(call.what.count);
    const std::size_t bytes = count * element_size(call.what.dtype);
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
        check_nccl(
            nccl().broadcast(call.in, call.in != nullptr ? const_cast<void*>(call.in) : call.out,
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
      case CollectiveKind::send:
      case CollectiveKind::recv:
        exchange(call, comm, on);
        return;
    }
  }

  // One message between every pair of ranks, most of which may be empty.
  void exchange(const CollectiveCall& call, ncclComm_t comm, cudaStream_t on) {
    const CollectiveKind kind = call.what.kind;
    const std::size_t width = element_size(call.what.dtype);
    const std::size_t bytes = static_cast<std::size_t>(call.what.count) * width;
    const int root = call.what.root;
    const auto* in = static_cast<const std::byte*>(call.in);
    auto* out = static_cast<std::byte*>(call.out);
    std::size_t sent = 0;
    std::size_t received = 0;
    check_nccl(nccl().group_start(), "ncclGroupStart", "beginning messages");
    // An exception would leave the NCCL group of this thread open.
    ncclResult_t failure = ncclSuccess;
    for (int p = 0; p < size_; ++p) {
      const auto at = static_cast<std::size_t>(p);
      std::size_t send = 0;
      std::size_t receive = 0;
      if (call.is_uneven()) {
        send = static_cast<std::size_t>(call.send_counts[at]) * width;
        receive = static_cast<std::size_t>(call.recv_counts[at]) * width;
      } else if (kind == CollectiveKind::all_to_all) {
        send = receive = bytes;
      } else if (kind == CollectiveKind::gather) {
        send = p == root ? bytes : 0;
        receive = rank_ == root ? bytes : 0;
      } else if (kind == CollectiveKind::scatter) {
        send = rank_ == root ? bytes : 0;
        receive = p == root ? bytes : 0;
      } else if (p == root) {
        (kind == CollectiveKind::send ? send : receive) = bytes;
      }
      if (send > 0 && failure == ncclSuccess) {
        failure = nccl().send(in + sent, send, ncclUint8, p, comm, on);
      }
      if (receive > 0 && failure == ncclSuccess) {
        failure = nccl().recv(out + received, receive, ncclUint8, p, comm, on);
      }
      // Advance only if each rank has its own block.
      if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::scatter) sent += send;
      if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::gather) received += receive;
    }
    const ncclResult_t end = nccl().group_end();
    check_nccl(failure, "ncclSend, ncclRecv", "passing messages");
    check_nccl(end, "ncclGroupEnd()", "passing messages");
  }

  // Concurrent sends and receives.
  static void exchange(std::span<const ResolvedCall> messages, ncclComm_t comm, cudaStream_t on) {
    check_nccl(nccl().group_start(), "ncclGroupStart", "beginning messages");
    ncclResult_t failure = ncclSuccess;
    for (const ResolvedCall& call : messages) {
      if (failure != ncclSuccess) break;
      const std::size_t bytes =
          static_cast<std::size_t>(call.what.count) * element_size(call.what.dtype);
      if (bytes == 0) continue;
      failure = call.what.kind == CollectiveKind::send
                    ? nccl().send(call.in, bytes, ncclUint8, call.what.root, comm, on)
                    : nccl().recv(call.out, bytes, ncclUint8, call.what.root, comm, on);
    }
    const ncclResult_t end = nccl().group_end();
    check_nccl(failure, "ncclSend, ncclRecv", "passing messages");
    check_nccl(end, "ncclGroupEnd()", "passing messages");
  }

  int rank_;
  int size_;
  Device device_;
  Bootstrap& bootstrap_;
  ControlSegment* control_;
  NcclComm comm_;
  std::uint64_t* runs_;   // the run counter of progress reports, in device memory
  OperationQueue queue_;  // one for all operations, as in NCCL
  bool reports_progress_;
  std::optional<OperationDeadlines> deadlines_;  // used without a control segment
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const Membership& membership, Bootstrap& bootstrap,
                                               ControlSegment* control, bool reports_progress,
                                               std::chrono::milliseconds timeout) {
  if (platform() != Platform::cuda) {
    throw NotSupported(
        "Communicator::world: ranks on several machines need NCCL, which needs real GPUs");
  }
  return std::make_unique<NcclTransport>(membership, bootstrap, control, reports_progress, timeout);
}

}  // namespace gantry
