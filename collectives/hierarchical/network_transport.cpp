#include "collectives/hierarchical/network_transport.hpp"

#include <exception>
#include <utility>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/hierarchical/network_watch.hpp"

namespace gantry {

namespace {

class NetworkTransport final : public Transport {
 public:
  NetworkTransport(const Membership& everyone, std::unique_ptr<HostTransport> all,
                   std::unique_ptr<Transport> nccl, GroupTimeout timeout)
      : all_(std::move(all)),
        nccl_(std::move(nccl)),
        watch_(everyone, all_->links(), std::move(timeout),
               {.find_error = [this] { return nccl_->asynchronous_error(); },
                .abort = [this] { nccl_->abort(); }}) {}

  std::string_view name() const override { return "nccl"; }
  bool uses_nccl() const override { return true; }
  bool is_waiting() const override { return nccl_->is_waiting(); }
  void require_intact() const override { watch_.require_intact(); }
  void abort() noexcept override {
    all_->abort();
    nccl_->abort();
  }
  void await_abort() noexcept override { nccl_->await_abort(); }
  void close() noexcept override {
    watch_.await_others();
    all_->close();
  }

  End run(const ResolvedCall& call, const Stream& stream) override {
    watch_.require_intact();
    if (call.what.kind == CollectiveKind::barrier || is_message(call.what.kind))
      return guarded([&] { return all_->run(call, stream); });
    return guarded([&] {
      all_->verify(call, stream);
      watch_.begin(stream, call);
      End end = nccl_->run(call, stream);
      watch_.end(stream);
      all_->throw_rejection();
      return end;
    });
  }
  End run_together(std::span<const ResolvedCall> messages, const Stream& stream) override {
    watch_.require_intact();
    return guarded([&] { return all_->run_together(messages, stream); });
  }

 private:
  // Runs `submit`. Its error becomes the error of this rank, unless all ranks throw it and go on.
  template <class Submit>
  End guarded(Submit submit) {
    try {
      return submit();
    } catch (const CollectiveMismatch&) {
      throw;
    } catch (const CaptureError&) {
      throw;
    } catch (const NcclError&) {
      watch_.await_diagnosis();
      watch_.fail(std::current_exception());
    } catch (...) {
      watch_.fail(std::current_exception());
    }
    watch_.require_intact();  // throws
    return {};
  }

  std::unique_ptr<HostTransport> all_;
  std::unique_ptr<Transport> nccl_;
  NetworkWatch watch_;  // ends first
};

}  // namespace

std::unique_ptr<Transport> make_network_transport(const Membership& everyone,
                                                  std::unique_ptr<HostTransport> all,
                                                  std::unique_ptr<Transport> nccl,
                                                  GroupTimeout timeout) {
  return std::make_unique<NetworkTransport>(everyone, std::move(all), std::move(nccl),
                                            std::move(timeout));
}

}  // namespace gantry
