#include "machine/topology/node_pages.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace gantry::machine {
namespace {

// More than one part, so that several threads fault them in.
constexpr std::size_t kBytes = std::size_t{40} << 20;

TEST(NodePagesTest, AreZeroAndWritableForAnyNodeAndNumberOfThreads) {
  for (const int node : {-1, 0, 1023, 1024}) {  // also nodes that no machine has
    for (const int threads : {1, 3, most_page_threads()}) {
      std::byte* const data = map_node_pages(kBytes, node, threads);
      ASSERT_NE(data, nullptr) << node;
      EXPECT_TRUE(std::all_of(data, data + kBytes, [](std::byte b) { return b == std::byte{0}; }));
      std::fill(data, data + kBytes, std::byte{7});
      unmap_node_pages(data, kBytes);
    }
  }
}

TEST(NodePagesTest, ImpossibleSizesGiveNothing) {
  EXPECT_EQ(map_node_pages(std::size_t{1} << 60, 0, 2), nullptr);
  EXPECT_EQ(map_node_pages(~std::size_t{0} & ~std::size_t{4095}, -1, 2), nullptr);
}

TEST(NodePagesTest, AreSharedWithAChildProcess) {
  std::byte* const data = map_node_pages(4096, 0, 1);
  ASSERT_NE(data, nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    data[0] = std::byte{2};
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(data[0], std::byte{2}) << "the child has pages of its own";
  unmap_node_pages(data, 4096);
}

}  // namespace
}  // namespace gantry::machine
