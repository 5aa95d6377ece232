#include "core/text/byte_count.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace gantry {
namespace {

TEST(ByteCountTest, HasAUnit) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(20 << 20), "20.00 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 29), "1.50 GiB");
}

}  // namespace
}  // namespace gantry
