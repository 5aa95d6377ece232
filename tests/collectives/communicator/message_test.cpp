// Messages between two ranks: every size around the slots of a connection, and messages that are
// sent before they are received.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/protocol/layout.hpp"
#include "tests/collectives/communicator/local_group.hpp"

namespace gantry {
namespace {

using protocol::kConnectionBlocks;
using protocol::kConnectionSlots;
using testing::CollectiveSuite;

class MessageTest : public testing::LocalGroupTest {
 protected:
  // Bytes of a slot of a group of `ranks`, its header with them.
  static std::int64_t slot_bytes(int ranks) {
    return protocol::layout_for(ranks).connection_bytes / (kConnectionBlocks * kConnectionSlots) /
           16 * 16;
  }

  // What rank `sender` sends as its message `number`.
  static Tensor content(int sender, int number, std::int64_t bytes) {
    Tensor result = arange(bytes, {.dtype = i64});
    return result.mul_(7 * sender + 13).add_(number).remainder(251).to(u8);
  }

  static void require_content(const Tensor& received, int sender, int number) {
    if (received.cpu().equal(content(sender, number, received.numel()))) return;
    throw std::runtime_error(fmt::format("message {} of {} bytes from rank {} is wrong", number,
                                         received.numel(), sender));
  }
};

TEST_F(MessageTest, EverySizeArrivesAndNothingBesideIt) {
  GANTRY_REQUIRE_DEVICES(2);
  constexpr std::int64_t kMegabyte = 1 << 20;
  for (const int ranks : {2, std::min(device_count(), 8)}) {
    const std::int64_t payload = slot_bytes(ranks) - 16;
    std::vector<std::int64_t> sizes{0, 1, 15, 16, 2047, 2048, 2049};
    for (const std::int64_t edge :
         {kConnectionBlocks * std::int64_t{2048}, payload, kConnectionBlocks * payload,
          kConnectionBlocks * kConnectionSlots * payload,
          3 * kConnectionBlocks * kConnectionSlots * payload}) {
      for (const std::int64_t by : {-1, 0, 17}) sizes.push_back(edge + by);
    }
    on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
      const int last = group.size() - 1;
      int number = 0;
      for (const std::int64_t bytes : sizes) {
        for (const std::int64_t offset : {0, 1, 2, 4}) {
          if (bytes > kMegabyte && offset > 1) continue;  // two of large ones are enough
          ++number;
          const int from = number % 2 == 0 ? 0 : last;
          if (group.rank() == from) {
            const Tensor all = zeros({bytes + 16}, {.dtype = u8, .device = group.device()});
            Tensor out = all.narrow(0, offset, bytes);
            out.copy_(content(from, number, bytes));
            group.send(out, last - from);
          } else if (group.rank() == last - from) {
            const Tensor all = full({bytes + 32}, 77, {.dtype = u8, .device = group.device()});
            Tensor in = all.narrow(0, 16 - offset, bytes);
            group.recv(in, from);
            require_content(in, from, number);
            for (const std::int64_t beside : {15 - offset, 16 - offset + bytes}) {
              if (all[beside].item<int>() != 77) throw std::runtime_error("wrote beside a message");
            }
          }
        }
      }
    });
  }
}

TEST_F(MessageTest, WhatFitsLeavesBeforeItIsReceived) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::int64_t whole = kConnectionBlocks * kConnectionSlots * (slot_bytes(2) - 16);
  // As many small ones as a block has slots, or one that fills them all.
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>(kConnectionSlots, 100), {whole}, {whole / 2, whole / 2}}) {
    on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
      if (group.rank() == 0) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          group.send(content(0, static_cast<int>(i), sizes[i]).to(group.device()), 1);
        }
        synchronize(group.device());
      }
      group.host_barrier();
      if (group.rank() == 1) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          Tensor in = zeros({sizes[i]}, {.dtype = u8, .device = group.device()});
          group.recv(in, 0);
          require_content(in, 0, static_cast<int>(i));
        }
      }
    });
  }
}

TEST_F(MessageTest, ManyOfAllSizesKeepTheirOrderBothWays) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    std::vector<Tensor> received;
    for (int number = 0; number < 60; ++number) {
      // From nothing to some 100 KB, in no order.
      const std::int64_t bytes = number * number * std::int64_t{7919} % 100'003 * (number % 3);
      Tensor in = zeros({bytes}, {.dtype = u8, .device = group.device()});
      const Tensor out = content(group.rank(), number, bytes).to(group.device());
      if ((group.rank() + number) % 2 == 0) {
        group.send(out, other);
        group.recv(in, other);
      } else {
        group.recv(in, other);
        group.send(out, other);
      }
      received.push_back(in);
    }
    for (int number = 0; number < 60; ++number) {
      require_content(received[static_cast<std::size_t>(number)], other, number);
    }
  });
}

}  // namespace
}  // namespace gantry
