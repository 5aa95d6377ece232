// Many calls of NCCL's interface at random, none of which may fail or warn. GANTRY_TEST_ROUNDS is
// the number of calls, GANTRY_TEST_SEED draws others.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/gantry.hpp>

#include "tests/compat/nccl_drawn_operation.hpp"
#include "tests/compat/nccl_functions.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

constexpr int kSize = 4;
constexpr int kSlots = 3;

std::int64_t wanted_calls() {
  return env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000'000).value_or(20'000);
}
std::uint64_t seed() {
  return static_cast<std::uint64_t>(env::get_int("GANTRY_TEST_SEED", 0, 1'000'000'000).value_or(1));
}

// Counts calls, and stops the campaign at the first that fails.
class Calls {
 public:
  void expect(ncclResult_t result) {
    made_.fetch_add(1, std::memory_order_relaxed);
    if (result == ncclSuccess) return;
    has_failed_ = true;
    ADD_FAILURE() << "call " << made_ << ": " << ncclGetLastError(nullptr);
  }
  [[nodiscard]] bool go_on(std::int64_t end) const { return made_ < end && !has_failed_; }
  [[nodiscard]] std::int64_t made() const { return made_; }

 private:
  std::atomic<std::int64_t> made_{0};
  std::atomic<bool> has_failed_{false};
};

// The memory and the streams of one rank. Each stream's operations write to memory of their own.
struct Place {
  explicit Place(int rank) : device(Device::cuda(rank)) {
    const TensorOptions options{.dtype = DType::i32, .device = device};
    in = tensor(DrawnOperation::inputs(rank, kSize), options);
    for (int slot = 0; slot < kSlots; ++slot) {
      out.push_back(zeros({in.numel()}, options));
      streams.push_back(slot == 0 ? Stream::default_stream(device) : Stream::from_pool(device));
    }
    synchronize(device);
  }
  ~Place() { synchronize(device); }  // the streams use the memory
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  [[nodiscard]] cudaStream_t stream(int slot) const {
    return static_cast<cudaStream_t>(streams[static_cast<std::size_t>(slot)].native_handle());
  }
  [[nodiscard]] void* result(int slot) const { return out[static_cast<std::size_t>(slot)].data(); }
  // Waits for the stream.
  [[nodiscard]] std::vector<std::int32_t> read(int slot) const {
    const StreamGuard guard(streams[static_cast<std::size_t>(slot)]);
    return out[static_cast<std::size_t>(slot)].to_vector<std::int32_t>();
  }

  Device device;
  Tensor in;
  std::vector<Tensor> out;
  std::vector<Stream> streams;
};

// A communicator of a rank, and the ranks of the first group that are in it.
struct Member {
  ncclComm_t comm = nullptr;
  std::vector<int> ranks;
  int rank = 0;  // in `ranks`
};

void submit(Calls& calls, const DrawnOperation& drawn, const Member& member, const Place& place,
            int slot) {
  drawn.submit(member.rank, static_cast<int>(member.ranks.size()), place.in.data(),
               place.result(slot), member.comm, place.stream(slot),
               [&](ncclResult_t result) { calls.expect(result); });
}

void expect_result(const DrawnOperation& drawn, const Member& member, const Place& place,
                   int slot) {
  const std::vector<std::int32_t> expected = drawn.expected(member.rank, member.ranks);
  std::vector<std::int32_t> found = place.read(slot);
  found.resize(expected.size());
  EXPECT_EQ(found, expected) << drawn.describe();
}

void ask(Calls& calls, const Member& member, const Place& place) {
  int count = -1;
  int rank = -1;
  int device = -1;
  ncclResult_t state = ncclInternalError;
  calls.expect(ncclCommCount(member.comm, &count));
  calls.expect(ncclCommUserRank(member.comm, &rank));
  calls.expect(ncclCommCuDevice(member.comm, &device));
  calls.expect(ncclCommGetAsyncError(member.comm, &state));
  EXPECT_EQ(count, static_cast<int>(member.ranks.size()));
  EXPECT_EQ(rank, member.rank);
  EXPECT_EQ(device, place.device.index);
  EXPECT_EQ(state, ncclSuccess);
}

// The ranks of `rank`'s part, where ranks of equal (rank + shift) % 2 are together.
Member part_of(int rank, int shift) {
  Member member;
  for (int other = 0; other < kSize; ++other) {
    if ((other + shift) % 2 != (rank + shift) % 2) continue;
    if (other == rank) member.rank = static_cast<int>(member.ranks.size());
    member.ranks.push_back(other);
  }
  return member;
}

Member whole(int rank) {
  Member member;
  member.rank = rank;
  for (int other = 0; other < kSize; ++other) member.ranks.push_back(other);
  return member;
}

class NcclCampaign : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    GANTRY_REQUIRE_DEVICES(kSize);
    ::testing::internal::CaptureStderr();
    captures_ = true;
  }
  void TearDown() override {
    if (captures_) {
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    }
    RecordProperty("calls", static_cast<int>(calls_.made()));
    DeviceTest::TearDown();
  }

  Calls calls_;

 private:
  bool captures_ = false;
};

// The groups of one thread, which has all ranks.
class OneThread {
 public:
  OneThread(Calls& calls, std::uint64_t seed) : calls_(calls), draw_(seed) {
    for (int rank = 0; rank < kSize; ++rank) places_.emplace_back(rank);
  }

  void live(std::int64_t end) {
    std::vector<ncclComm_t> comms(kSize);
    calls_.expect(ncclCommInitAll(comms.data(), kSize, nullptr));
    for (int rank = 0; rank < kSize; ++rank) {
      all_.push_back(whole(rank));
      all_.back().comm = comms[static_cast<std::size_t>(rank)];
    }
    for (int round = 0; round < 2000 && calls_.go_on(end); ++round) {
      if (round % 250 == 0) split();
      run(draw_() % 2 == 0 ? all_ : parts_, round % 100 == 0);
    }
    destroy(parts_);
    destroy(all_);
  }

 private:
  void split() {
    destroy(parts_);
    const int shift = static_cast<int>(draw_() % 2);
    std::vector<ncclComm_t> comms(kSize);
    calls_.expect(ncclGroupStart());
    for (int rank = 0; rank < kSize; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      calls_.expect(ncclCommSplit(all_[at].comm, (rank + shift) % 2, rank, &comms[at], nullptr));
    }
    calls_.expect(ncclGroupEnd());
    for (int rank = 0; rank < kSize; ++rank) {
      parts_.push_back(part_of(rank, shift));
      parts_.back().comm = comms[static_cast<std::size_t>(rank)];
    }
  }

  void run(const std::vector<Member>& members, bool checks) {
    const int slot = static_cast<int>(draw_() % kSlots);
    const std::size_t count = 1 + draw_() % 3;
    std::vector<DrawnOperation> drawn;
    // Messages of a group come after its collectives, so the last operation is alone in a check.
    while (drawn.size() < (checks ? 1 : count)) {
      const DrawnOperation one(draw_);
      // Messages of one group need memory of their own.
      if (one.is_message() && std::ranges::any_of(drawn, &DrawnOperation::is_message)) continue;
      drawn.push_back(one);
    }
    calls_.expect(ncclGroupStart());
    for (const DrawnOperation& one : drawn) {
      for (const Member& member : members) submit(calls_, one, member, place(member), slot);
    }
    calls_.expect(ncclGroupEnd());
    if (!checks) return;
    for (const Member& member : members) {
      expect_result(drawn.back(), member, place(member), slot);
      ask(calls_, member, place(member));
    }
  }

  void destroy(std::vector<Member>& members) {
    for (const Member& member : members) calls_.expect(ncclCommDestroy(member.comm));
    members.clear();
  }

  [[nodiscard]] const Place& place(const Member& member) const {
    return places_[static_cast<std::size_t>(member.ranks[static_cast<std::size_t>(member.rank)])];
  }

  Calls& calls_;
  std::mt19937_64 draw_;
  std::deque<Place> places_;
  std::vector<Member> all_;
  std::vector<Member> parts_;
};

TEST_F(NcclCampaign, OneThreadCallsForAllRanks) {
  OneThread thread(calls_, seed());
  while (calls_.go_on(wanted_calls() / 2)) thread.live(wanted_calls() / 2);
}

// One of several threads, each of which has a rank and draws what the others draw.
void live_as(int rank, const ncclUniqueId& id, std::uint64_t seed, Calls& calls) {
  set_device(Device::cuda(rank));
  const Place place(rank);
  std::mt19937_64 draw(seed);
  Member all = whole(rank);
  Member part;
  calls.expect(ncclCommInitRank(&all.comm, kSize, id, rank));
  for (int round = 0; round < 1000; ++round) {
    if (round % 250 == 0) {
      if (part.comm != nullptr) calls.expect(ncclCommDestroy(part.comm));
      const int shift = static_cast<int>(draw() % 2);
      part = part_of(rank, shift);
      calls.expect(ncclCommSplit(all.comm, (rank + shift) % 2, rank, &part.comm, nullptr));
    }
    const Member& member = draw() % 2 == 0 ? all : part;
    const int slot = static_cast<int>(draw() % kSlots);
    const DrawnOperation drawn(draw);
    submit(calls, drawn, member, place, slot);
    if (round % 100 != 0) continue;
    expect_result(drawn, member, place, slot);
    ask(calls, member, place);
  }
  calls.expect(ncclCommDestroy(part.comm));
  calls.expect(ncclCommFinalize(all.comm));
  calls.expect(ncclCommDestroy(all.comm));
}

TEST_F(NcclCampaign, AThreadCallsForEachRank) {
  for (std::uint64_t life = 0; calls_.go_on(wanted_calls() / 2); ++life) {
    ncclUniqueId id{};
    calls_.expect(ncclGetUniqueId(&id));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] { live_as(rank, id, seed() + life, calls_); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace gantry::testing
