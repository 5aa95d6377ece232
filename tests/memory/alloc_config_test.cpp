#include "memory/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <gantry/core/error.hpp>

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(AllocConfigTest, HasDefaults) {
  const AllocConfig config = parse_alloc_config("");
  EXPECT_EQ(config.max_split_bytes, AllocConfig{}.max_split_bytes);
  EXPECT_EQ(config.gc_threshold, 0);
  EXPECT_EQ(config.fraction, 1);
  EXPECT_EQ(config.backend, "vmm");
}

TEST(AllocConfigTest, ReadsEveryKey) {
  const AllocConfig config =
      parse_alloc_config("backend:native,max_split_size_mb:64,gc_threshold:0.8,fraction:0.5");
  EXPECT_EQ(config.max_split_bytes, std::size_t{64} << 20);
  EXPECT_DOUBLE_EQ(config.gc_threshold, 0.8);
  EXPECT_DOUBLE_EQ(config.fraction, 0.5);
}

TEST(AllocConfigTest, NamesWhatIsWrong) {
  struct Case {
    const char* text;
    const char* error;
  };
  for (const Case& c : {
           Case{"foo:1",
                "GANTRY_ALLOC_CONF: expected one of the keys backend, fraction, gc_threshold, "
                "max_split_size_mb, but got 'foo'"},
           Case{"backend:none",
                "GANTRY_ALLOC_CONF: backend: expected one of vmm, native, async, but got "
                "'none'"},
           Case{"fraction", "GANTRY_ALLOC_CONF: expected key:value, but got 'fraction'"},
           Case{"fraction:0.5,,gc_threshold:0.5",
                "GANTRY_ALLOC_CONF: expected key:value, but got ''"},
           Case{"fraction:0",
                "GANTRY_ALLOC_CONF: fraction: expected a number above 0 and at most 1, but got "
                "'0'"},
           Case{"fraction:nan", "fraction: expected a number above 0 and at most 1"},
           Case{"fraction:", "fraction: expected a number above 0 and at most 1"},
           Case{"gc_threshold:1.5", "gc_threshold: expected a number above 0 and at most 1"},
           Case{"gc_threshold:0.5x", "gc_threshold: expected a number above 0 and at most 1"},
           Case{"max_split_size_mb:19", "GANTRY_ALLOC_CONF: max_split_size_mb"},
           Case{"max_split_size_mb:lots", "GANTRY_ALLOC_CONF: max_split_size_mb"},
           Case{"max_split_size_mb:99999999999999999999", "GANTRY_ALLOC_CONF: max_split_size_mb"},
       }) {
    EXPECT_THAT([&] { static_cast<void>(parse_alloc_config(c.text)); },
                ThrowsMessage<InvalidArgument>(HasSubstr(c.error)))
        << c.text;
  }
}

}  // namespace
}  // namespace gantry::memory
