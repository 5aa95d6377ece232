// Operations that move elements: every type, in place as NCCL defines it, and messages.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/compat/nccl_elements.hpp"
#include "tests/compat/nccl_ranks.hpp"

namespace gantry {
namespace {

using testing::DeviceArray;
using testing::elements_of;
using testing::for_each_type;
using testing::NcclRanks;
using testing::ranks;

using Arrays = std::vector<DeviceArray>;  // one per rank

// Elements of all ranks in rank order.
template <class T>
std::vector<T> joined(int size, std::size_t count) {
  std::vector<T> all;
  for (int rank = 0; rank < size; ++rank) {
    const auto part = elements_of<T>(rank, count);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Part `rank` of an array that has one part per rank.
template <class T>
std::vector<T> part_of(const std::vector<T>& all, std::size_t rank, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

// One array per rank.
template <class T, class Make>
Arrays arrays(int size, Make make) {
  Arrays made;
  for (int rank = 0; rank < size; ++rank) made.emplace_back(rank, std::vector<T>(make(rank)));
  return made;
}

template <class T>
void* part_at(const DeviceArray& array, std::size_t part, std::size_t count) {
  return static_cast<std::byte*>(array.data()) + part * count * sizeof(T);
}

// Calls `with` for each type and some numbers of elements.
template <class With>
void for_each_array(With with) {
  for_each_type([&]<class T>(ncclDataType_t type, const char* name, T element) {
    for (const std::size_t count : {0, 1, 7, 20'000}) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(count) + " elements");
      with(type, element, count);
    }
  });
}

TEST(NcclMoves, BroadcastWritesTheRootsElements) {
  const NcclRanks group;
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    for (int root = 0; root < group.size(); ++root) {
      const Arrays in = arrays<T>(group.size(), [&](int r) { return elements_of<T>(r, count); });
      const Arrays out = arrays<T>(group.size(), [&](int) { return std::vector<T>(count); });
      const auto wanted = elements_of<T>(root, count);
      group.grouped([&](int rank, ncclComm_t comm) {
        const auto at = static_cast<std::size_t>(rank);
        const void* send = rank == root ? in[at].data() : nullptr;
        return ncclBroadcast(send, out[at].data(), count, type, root, comm, nullptr);
      });
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_TRUE(out[at].elements<T>() == wanted);
        EXPECT_TRUE(in[at].elements<T>() == elements_of<T>(rank, count));
      }
      group.grouped([&](int rank, ncclComm_t comm) {
        void* const place = in[static_cast<std::size_t>(rank)].data();
        if (root % 2 == 0) return ncclBcast(place, count, type, root, comm, nullptr);
        return ncclBroadcast(place, place, count, type, root, comm, nullptr);
      });
      for (const DeviceArray& one : in) EXPECT_TRUE(one.elements<T>() == wanted);
    }
  });
}

TEST(NcclMoves, AllGatherJoinsTheRanks) {
  const NcclRanks group;
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    const auto wanted = joined<T>(group.size(), count);
    const Arrays in = arrays<T>(group.size(), [&](int r) { return elements_of<T>(r, count); });
    for (const bool in_place : {false, true}) {
      const Arrays out =
          arrays<T>(group.size(), [&](int) { return std::vector<T>(wanted.size()); });
      const Arrays whole = arrays<T>(group.size(), [&](int) { return wanted; });
      group.grouped([&](int rank, ncclComm_t comm) {
        const auto at = static_cast<std::size_t>(rank);
        if (!in_place) {
          return ncclAllGather(in[at].data(), out[at].data(), count, type, comm, nullptr);
        }
        return ncclAllGather(part_at<T>(whole[at], at, count), whole[at].data(), count, type, comm,
                             nullptr);
      });
      for (const DeviceArray& one : in_place ? whole : out) {
        EXPECT_TRUE(one.elements<T>() == wanted);
      }
    }
    for (int rank = 0; rank < group.size(); ++rank) {
      EXPECT_TRUE(in[static_cast<std::size_t>(rank)].elements<T>() == elements_of<T>(rank, count));
    }
  });
}

TEST(NcclMoves, GatherWritesOnTheRootAlone) {
  const NcclRanks group;
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    const auto wanted = joined<T>(group.size(), count);
    for (int root = 0; root < group.size(); ++root) {
      for (const bool in_place : {false, true}) {
        const Arrays in = arrays<T>(group.size(), [&](int r) { return elements_of<T>(r, count); });
        // In place, the root's own part is there already, and the others are not.
        std::vector<T> before(wanted.size());
        const auto own = elements_of<T>(root, count);
        std::copy(own.begin(), own.end(),
                  before.begin() + static_cast<std::ptrdiff_t>(count) * root);
        const DeviceArray out(root, in_place ? before : std::vector<T>(wanted.size()));
        group.grouped([&](int rank, ncclComm_t comm) {
          const auto at = static_cast<std::size_t>(rank);
          const bool is_root = rank == root;
          const void* send = is_root && in_place ? part_at<T>(out, at, count) : in[at].data();
          return ncclGather(send, is_root ? out.data() : nullptr, count, type, root, comm, nullptr);
        });
        EXPECT_TRUE(out.elements<T>() == wanted);
        for (int rank = 0; rank < group.size(); ++rank) {
          EXPECT_TRUE(in[static_cast<std::size_t>(rank)].elements<T>() ==
                      elements_of<T>(rank, count));
        }
      }
    }
  });
}

TEST(NcclMoves, ScatterGivesEachRankItsPart) {
  const NcclRanks group;
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    const auto all = joined<T>(group.size(), count);
    for (int root = 0; root < group.size(); ++root) {
      for (const bool in_place : {false, true}) {
        const DeviceArray in(root, all);
        const Arrays out = arrays<T>(group.size(), [&](int) { return std::vector<T>(count); });
        group.grouped([&](int rank, ncclComm_t comm) {
          const auto at = static_cast<std::size_t>(rank);
          const bool is_root = rank == root;
          void* const recv = is_root && in_place ? part_at<T>(in, at, count) : out[at].data();
          return ncclScatter(is_root ? in.data() : nullptr, recv, count, type, root, comm, nullptr);
        });
        for (int rank = 0; rank < group.size(); ++rank) {
          const auto at = static_cast<std::size_t>(rank);
          if (rank == root && in_place) continue;
          EXPECT_TRUE(out[at].elements<T>() == elements_of<T>(rank, count));
        }
        EXPECT_TRUE(in.elements<T>() == all);
      }
    }
  });
}

TEST(NcclMoves, AllToAllExchangesParts) {
  const NcclRanks group;
  const auto size = static_cast<std::size_t>(group.size());
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    const Arrays in =
        arrays<T>(group.size(), [&](int r) { return elements_of<T>(r, count * size); });
    const Arrays out = arrays<T>(group.size(), [&](int) { return std::vector<T>(count * size); });
    group.grouped([&](int rank, ncclComm_t comm) {
      const auto at = static_cast<std::size_t>(rank);
      return ncclAlltoAll(in[at].data(), out[at].data(), count, type, comm, nullptr);
    });
    for (std::size_t to = 0; to < size; ++to) {
      const auto got = out[to].elements<T>();
      for (std::size_t from = 0; from < size; ++from) {
        const auto sent = elements_of<T>(static_cast<int>(from), count * size);
        EXPECT_TRUE(part_of(got, from, count) == part_of(sent, to, count));
      }
      EXPECT_TRUE(in[to].elements<T>() == elements_of<T>(static_cast<int>(to), count * size));
    }
  });
}

TEST(NcclMessages, EveryTypeGoesAroundARing) {
  const NcclRanks group;
  for_each_array([&]<class T>(ncclDataType_t type, T, std::size_t count) {
    const Arrays in = arrays<T>(group.size(), [&](int r) { return elements_of<T>(r, count); });
    const Arrays out = arrays<T>(group.size(), [&](int) { return std::vector<T>(count); });
    group.grouped([&](int rank, ncclComm_t comm) {
      const auto at = static_cast<std::size_t>(rank);
      const int next = (rank + 1) % group.size();
      const int previous = (rank + group.size() - 1) % group.size();
      EXPECT_EQ(ncclRecv(out[at].data(), count, type, previous, comm, nullptr), ncclSuccess);
      return ncclSend(in[at].data(), count, type, next, comm, nullptr);
    });
    for (int rank = 0; rank < group.size(); ++rank) {
      const int previous = (rank + group.size() - 1) % group.size();
      EXPECT_TRUE(out[static_cast<std::size_t>(rank)].elements<T>() ==
                  elements_of<T>(previous, count));
    }
  });
}

TEST(NcclMessages, SmallOnesNeedNoGroup) {
  const NcclRanks group;
  if (group.size() < 2) GTEST_SKIP() << "needs two devices";
  const DeviceArray in(0, elements_of<float>(0, 100));
  const DeviceArray out(1, std::vector<float>(100));
  ASSERT_EQ(ncclSend(in.data(), 100, ncclFloat32, 1, group.comms[0], nullptr), ncclSuccess);
  ASSERT_EQ(ncclRecv(out.data(), 100, ncclFloat32, 0, group.comms[1], nullptr), ncclSuccess);
  EXPECT_TRUE(out.elements<float>() == elements_of<float>(0, 100));
}

// Messages of one pair of ranks keep their order, also a rank's messages to itself.
TEST(NcclMessages, MoreThanAGroupOfGantrysHolds) {
  const NcclRanks group;
  constexpr std::size_t kMessages = 700;
  const auto size = static_cast<std::size_t>(group.size());
  const Arrays in = arrays<std::int32_t>(
      group.size(), [](int rank) { return elements_of<std::int32_t>(rank, kMessages); });
  const Arrays out = arrays<std::int32_t>(
      group.size(), [&](int) { return std::vector<std::int32_t>(kMessages * size); });
  group.grouped([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    for (std::size_t message = 0; message < kMessages; ++message) {
      for (int peer = 0; peer < group.size(); ++peer) {
        const auto from = static_cast<std::size_t>(peer);
        EXPECT_EQ(
            ncclSend(part_at<std::int32_t>(in[at], message, 1), 1, ncclInt32, peer, comm, nullptr),
            ncclSuccess);
        EXPECT_EQ(ncclRecv(part_at<std::int32_t>(out[at], from * kMessages + message, 1), 1,
                           ncclInt32, peer, comm, nullptr),
                  ncclSuccess);
      }
    }
    return ncclSuccess;
  });
  for (const DeviceArray& one : out) {
    EXPECT_TRUE(one.elements<std::int32_t>() == joined<std::int32_t>(group.size(), kMessages));
  }
}

// One rank has more messages than a group of gantry's holds, and each of the others has not.
TEST(NcclMessages, OneRankSendsToAllOthersManyTimes) {
  const NcclRanks group;
  constexpr std::size_t kMessages = 400;
  constexpr std::size_t kEach = 3'000;  // more than a message that leaves at once
  const DeviceArray in(0, elements_of<float>(0, kMessages * kEach));
  const Arrays out =
      arrays<float>(group.size(), [](int) { return std::vector<float>(kMessages * kEach); });
  group.grouped([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    for (std::size_t message = 0; message < kMessages; ++message) {
      for (int peer = 0; rank == 0 && peer < group.size(); ++peer) {
        EXPECT_EQ(
            ncclSend(part_at<float>(in, message, kEach), kEach, ncclFloat32, peer, comm, nullptr),
            ncclSuccess);
      }
      EXPECT_EQ(
          ncclRecv(part_at<float>(out[at], message, kEach), kEach, ncclFloat32, 0, comm, nullptr),
          ncclSuccess);
    }
    return ncclSuccess;
  });
  for (const DeviceArray& one : out) {
    EXPECT_TRUE(one.elements<float>() == elements_of<float>(0, kMessages * kEach));
  }
}

}  // namespace
}  // namespace gantry
