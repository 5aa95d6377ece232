#include "exchange.hpp"

#include <algorithm>
#include <cstdlib>

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

  void all_reduce(std::vector<std::vector<Tensor>>& lists) override {
    if (lists.size() == 1) return;
    const std::vector<Tensor> sums = gantry::comm::reduce_add_coalesced(lists, devices_.front());
    lists = gantry::comm::broadcast_coalesced(sums, devices_);
  }

  std::vector<std::string> all_gather(const std::vector<std::string>& local) override {
    return local;
  }

 private:
  std::vector<gantry::Device> devices_;
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

  void all_reduce(std::vector<std::vector<Tensor>>& lists) override {
    communicator_.all_reduce_coalesced(lists.front());
  }

  std::vector<std::string> all_gather(const std::vector<std::string>& local) override {
    return communicator_.all_gather_bytes(local.front());
  }

  void recover(const gantry::PeerLostError& error) override {
    if (std::getenv("GANTRY_ELASTIC") == nullptr || error.rank() < 0) throw error;
    const int all = gantry::detect_process_identity().world_size;
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
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(int limit) {
  if (gantry::detect_process_identity().world_size > 1) return std::make_unique<ManyProcesses>();
  return std::make_unique<SingleProcess>(limit);
}

}  // namespace digits
