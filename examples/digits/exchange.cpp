#include "exchange.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <gantry/job/process_identity.hpp>

namespace digits {

using gantry::Tensor;

namespace {

class SingleProcess final : public Exchange {
 public:
  explicit SingleProcess(int limit) {
    gantry::init();
    const int count = limit > 0 ? std::min(limit, gantry::device_count()) : gantry::device_count();
    for (int i = 0; i < count; ++i) devices_.push_back(gantry::Device::cuda(i));
  }

  std::string describe() const override {
    return "one process driving " + std::to_string(devices_.size()) + " device(s) through comm::*";
  }
  int replicas() const override { return static_cast<int>(devices_.size()); }
  int first_local() const override { return 0; }
  const std::vector<gantry::Device>& devices() const override { return devices_; }

  void all_reduce(std::span<Tensor> tensors) override {
    if (tensors.size() > 1) gantry::comm::all_reduce(tensors);
  }
  void set_gradients(const std::vector<std::vector<Tensor>>& gradients) override {
    gradients_ = gradients;
  }
  void ready(std::size_t /*replica*/, std::size_t /*gradient*/) override {}
  void finish() override {
    if (gradients_.size() == 1) return;
    const std::vector<Tensor> sums =
        gantry::comm::reduce_add_coalesced(gradients_, devices_.front());
    const std::vector<std::vector<Tensor>> copies =
        gantry::comm::broadcast_coalesced(sums, devices_);
    for (std::size_t r = 0; r < gradients_.size(); ++r) {
      for (std::size_t i = 0; i < sums.size(); ++i) gradients_[r][i].copy_(copies[r][i]);
    }
  }

  std::vector<std::string> all_gather(const std::vector<std::string>& local) override {
    return local;
  }

 private:
  std::vector<gantry::Device> devices_;
  std::vector<std::vector<Tensor>> gradients_;
};

class ManyProcesses final : public Exchange {
 public:
  ManyProcesses()
      : communicator_(gantry::Communicator::world()), devices_{communicator_.device()} {}

  std::string describe() const override {
    return std::to_string(communicator_.size()) + " processes started by " +
           communicator_.launched_by() + ", transport " + communicator_.transport();
  }
  int replicas() const override { return communicator_.size(); }
  int first_local() const override { return communicator_.rank(); }
  const std::vector<gantry::Device>& devices() const override { return devices_; }

  void all_reduce(std::span<Tensor> tensors) override { communicator_.all_reduce(tensors.front()); }
  void set_gradients(const std::vector<std::vector<Tensor>>& gradients) override {
    // Small buckets: the gradients of the last layer are reduced while the first one's are
    // computed.
    buckets_.emplace(communicator_, gradients.front(),
                     gantry::GradientBucketOptions{.bucket_bytes = std::size_t{64} << 10,
                                                   .op = gantry::ReduceOp::sum});
  }
  void ready(std::size_t /*replica*/, std::size_t gradient) override { buckets_->ready(gradient); }
  void finish() override { buckets_->finish(); }

  std::vector<std::string> all_gather(const std::vector<std::string>& local) override {
    return communicator_.all_gather_bytes(local.front());
  }

  void recover(const gantry::PeerLostError& error) override {
    if (std::getenv("GANTRY_ELASTIC") == nullptr || error.rank() < 0) throw error;
    const int all = gantry::detect_process_identity().world_size;
    buckets_.reset();
    for (std::vector<int> lost{error.rank()};;) {
      try {
        communicator_ = communicator_.shrink(lost);
        lost.clear();
        communicator_ = communicator_.grow(all);
        return;
      } catch (const gantry::PeerLostError& another) {
        if (another.rank() < 0) throw;
        lost.push_back(another.rank());
      }
    }
  }

 private:
  gantry::Communicator communicator_;
  std::vector<gantry::Device> devices_;
  std::optional<gantry::GradientBuckets> buckets_;  // of communicator_
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(int limit) {
  if (gantry::detect_process_identity().world_size > 1) return std::make_unique<ManyProcesses>();
  return std::make_unique<SingleProcess>(limit);
}

}  // namespace digits
