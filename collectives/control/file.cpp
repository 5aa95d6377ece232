#include "collectives/control/file.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "collectives/control/locked_words.hpp"
#include "core/env/settings.hpp"
#include "core/text/escaped_text.hpp"
#include "job/flight_folder.hpp"

namespace gantry {

namespace {

// Returns the rank of the job as flight::Rank::job_rank stores it.
std::uint32_t job_rank_number() {
  const std::string text = env::kRank.text();
  std::uint32_t rank = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return status == std::errc{} && end == text.data() + text.size() && rank < INT_MAX ? rank + 1 : 0;
}

}  // namespace

constinit std::atomic<std::uint64_t> ControlFile::order_{0};

FileHandshake ControlFile::renew(int size, std::chrono::milliseconds timeout,
                                 std::string_view group) {
  const std::string retired(path());
  const std::string renewed = new_control_path();
  FileHandshake mine;
  std::memset(base_, 0, bytes_);
  write_control_header(base_, size, timeout, group, renewed);
  // The name last: readers find a complete file.
  if (renewed.size() >= sizeof mine.path || !flight::rename_file(retired, renewed)) {
    flight::remove_file(retired);
    view_.header().path[0] = '\0';
    return mine;
  }
  mine.bytes = bytes_;
  mine.inode = inode_;
  mine.number = number_;
  put_text(mine.path, renewed);
  return mine;
}

std::string ControlFile::map(const FileHandshake& owner, int rank,
                             std::shared_ptr<ControlFile> kept) {
  if (kept) {
    base_ = std::exchange(kept->base_, nullptr);
    is_locked_ = std::exchange(kept->is_locked_, false);
  } else {
    const int descriptor = open_control_file(owner);
    if (descriptor < 0) {
      return fmt::format("rank {} cannot open that of rank 0: {}", rank, std::strerror(errno));
    }
    void* base = mmap(nullptr, owner.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    const int error = errno;
    close(descriptor);
    if (base == MAP_FAILED) {
      return fmt::format("rank {} cannot map it: {}", rank, std::strerror(error));
    }
    base_ = base;
  }
  bytes_ = owner.bytes;
  inode_ = owner.inode;
  view_ = flight::View(base_);
  const ProcessStamp self = this_process();
  flight::Rank& facts = view_.rank(rank);
  // The process id last: it publishes the other facts.
  facts.start_time = self.start_time;
  facts.job_rank = job_rank_number();
  __atomic_store_n(&facts.pid, self.pid, __ATOMIC_RELEASE);
  char host[sizeof facts.host] = {};
  gethostname(host, sizeof host - 1);
  put_text(facts.host, host);
  facts.heartbeat_ns.store(flight::monotonic_ns());
  return {};
}

ControlFile::ControlFile(Bootstrap& bootstrap, int rank, int size,
                         std::chrono::milliseconds timeout, std::string_view group, const Use& use)
    : owner_(getpid()) {
  FileHandshake mine;
  std::shared_ptr<ControlFile> kept;  // with the mapping that is taken over
  // Rank 0 keeps its descriptor open until all ranks have mapped the file.
  const auto close_mine = [&] {
    if (mine.descriptor >= 0) close(std::exchange(mine.descriptor, -1));
  };
  LockedWords& locked = LockedWords::instance();
  try {
    if (rank == 0) {
      kept = locked.take_file(size);
      if (kept) mine = kept->renew(size, timeout, group);
      if (kept && mine.path[0] == '\0') locked.release(std::exchange(kept, nullptr), rank);
      if (!kept) mine = create_control_file(size, timeout, group);
    }
    mine.pid = this_process().pid;
    mine.start_time = this_process().start_time;
    const std::vector<std::string> all =
        bootstrap.all_gather(std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
    std::vector<FileHandshake> peers(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].size() != sizeof(FileHandshake)) {
        throw Error(fmt::format("Communicator: rank {} runs another version of gantry", i));
      }
      std::memcpy(&peers[i], all[i].data(), sizeof(FileHandshake));
      processes_.push_back({peers[i].pid, peers[i].start_time});
    }
    const FileHandshake& owner = peers.at(0);
    std::string outcome;
    if (owner.failure[0] != '\0') {
      outcome = fmt::format("rank 0 cannot make it: {}", escaped_field(owner.failure));
    } else {
      const bool is_near = processes_[0] == this_process();
      if (rank != 0 && is_near) kept = locked.take_mapping(owner.number, rank);
      outcome = map(owner, rank, std::move(kept));
    }
    if (outcome.empty() && !is_locked_) {
      try {
        use.begin(view_);
        is_locked_ = true;
      } catch (const std::exception& error) {
        outcome = fmt::format("rank {}: {}", rank, error.what());
      }
    }
    for (const std::string& other : bootstrap.all_gather(outcome.empty() ? "ready" : outcome)) {
      if (other == "ready") continue;
      throw Error(fmt::format("Communicator: failed to share the control segment: {}",
                              escape_control_characters(other, LineEnds::keep)));
    }
    const auto is_here = [](const ProcessStamp& process) { return process == this_process(); };
    if (std::ranges::all_of(processes_, is_here)) number_ = owner.number;
  } catch (...) {
    close_mine();
    if (rank == 0 && mine.path[0] != '\0') flight::remove_file(mine.path);
    if (kept) locked.release(std::move(kept), rank);
    if (is_locked_) use.end(view_);
    if (base_ != nullptr) munmap(base_, bytes_);
    throw;
  }
  close_mine();
}

ControlFile::~ControlFile() {
  if (base_ == nullptr) return;  // taken over
  remove_retired();
  munmap(base_, bytes_);
}

std::string_view ControlFile::path() const noexcept {
  const char* const path = view_.header().path;
  return {path, strnlen(path, sizeof view_.header().path)};
}

bool ControlFile::is_retired() const noexcept { return path().ends_with(flight::kRetiredSuffix); }

bool ControlFile::is_reusable(int ranks) const {
  return number_ != 0 && is_retired() && view_.header().ranks == ranks &&
         path().starts_with(flight::folder() + "/");
}

void ControlFile::retire() noexcept {
  try {
    const std::string listed(path());
    if (listed.empty()) return;
    if (number_ != 0 && LockedWords::instance().has_several_ranks()) {
      std::string retired = listed;
      retired.erase(std::min(retired.rfind('.'), retired.size()));
      retired += flight::kRetiredSuffix;
      if (retired.size() < sizeof view_.header().path && flight::rename_file(listed, retired)) {
        put_text(view_.header().path, retired);
        return;
      }
    }
    flight::remove_file(listed);
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving a communicator: {}", error.what()));
  }
}

void ControlFile::remove_retired() noexcept {
  if (owner_ != getpid() || !is_retired()) return;
  try {
    flight::remove_file(std::string(path()));
  } catch (const std::exception& error) {
    logging::debug(fmt::format("leaving a communicator: {}", error.what()));
  }
}

}  // namespace gantry
