#include <mpi.h>

#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/bootstrap/mpi_lock.hpp"

namespace gantry {

namespace {

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(fmt::format("Failed exchanging bootstrap data over MPI: {} [{}]", text, call));
}

void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

class MpiBootstrap final : public Bootstrap {
 public:
  // A bootstrap over all ranks of the program.
  static std::unique_ptr<MpiBootstrap> make_world() {
    int initialized = 0;
    check(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized == 0) {
      int provided = 0;
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
      std::atexit(finalize_at_exit);
    }
    // A communicator of our own: messages never meet those of the program.
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    return std::make_unique<MpiBootstrap>(comm);
  }

  // Keeps `comm` until MPI ends: to free it, all members would have to come together again.
  explicit MpiBootstrap(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const auto count = static_cast<std::size_t>(size_);
    int length = static_cast<int>(bytes.size());
    std::vector<int> lengths(count);
    complete([&](MPI_Request* request) {
      return MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_, request);
    });
    std::vector<int> offsets(count);
    int total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      offsets[i] = total;
      total += lengths[i];
    }
    std::string joined(static_cast<std::size_t>(total), '\0');
    complete([&](MPI_Request* request) {
      return MPI_Iallgatherv(bytes.data(), length, MPI_BYTE, joined.data(), lengths.data(),
                             offsets.data(), MPI_BYTE, comm_, request);
    });
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(joined.substr(static_cast<std::size_t>(offsets[i]),
                                  static_cast<std::size_t>(lengths[i])));
    }
    return all;
  }

  // mpirun itself ends the job when a rank dies.
  int lost_rank() const noexcept override { return -1; }

  std::unique_ptr<Bootstrap> subset(const std::vector<int>& members,
                                    std::string_view name) override {
    constexpr std::size_t kTags = 32'768;  // every MPI has as many
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
    int status = MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    MPI_Group_free(&all);
    check(status, "MPI_Group_incl");
    const auto tag = static_cast<int>(std::hash<std::string_view>{}(name) % kTags);
    status = MPI_Comm_create_group(comm_, some, tag, &comm);
    MPI_Group_free(&some);
    check(status, "MPI_Comm_create_group");
    return std::make_unique<MpiBootstrap>(comm);
  }

 private:
  // Starts an operation and waits for it, without keeping other threads from calling MPI.
  template <class Start>
  static void complete(Start start) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::lock_guard lock(mpi_lock());
      check(start(&request), "MPI_Iallgather");
    }
    for (int done = 0; done == 0; std::this_thread::yield()) {
      const std::lock_guard lock(mpi_lock());
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int size_ = 0;
};

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<Bootstrap> make_mpi_bootstrap() { return MpiBootstrap::make_world(); }

}  // namespace gantry
