#include <fmt/format.h>

#include <atomic>

#include <gantry/core/rendezvous.hpp>

#include "collectives/bootstrap.hpp"

namespace gantry {

namespace {

class StoreBootstrap final : public Bootstrap {
 public:
  StoreBootstrap(const ProcessIdentity& identity, std::chrono::milliseconds timeout)
      : rank_(identity.rank), size_(identity.world_size), timeout_(timeout) {
    if (identity.serves_rendezvous()) {
      server_ = std::make_unique<StoreServer>(StoreServerOptions{.address = identity.rendezvous});
    }
    client_ = std::make_unique<StoreClient>(identity.rendezvous, identity.rank, timeout);
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const std::int64_t round = round_++;
    client_->set(key(round, rank_), bytes);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) {
      all.push_back(rank == rank_ ? bytes : client_->get(key(round, rank), timeout_));
    }
    return all;
  }

  int lost_rank() const noexcept override { return left_ ? -1 : client_->lost_rank(); }

  void leave() noexcept override {
    left_ = true;
    client_.reset();
  }

 private:
  static std::string key(std::int64_t round, int rank) {
    return fmt::format("gantry/bootstrap/{}/{}", round, rank);
  }

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::int64_t round_ = 0;
  std::atomic<bool> left_ = false;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> client_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_store_bootstrap(const ProcessIdentity& identity,
                                                std::chrono::milliseconds timeout) {
  return std::make_unique<StoreBootstrap>(identity, timeout);
}

}  // namespace gantry
