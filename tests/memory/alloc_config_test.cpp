#include "memory/policy/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(AllocConfigTest, HasDefaults) {
  const AllocConfig config = parse_alloc_config("");
  EXPECT_EQ(config.max_split_bytes, AllocConfig{}.max_split_bytes);
  EXPECT_EQ(config.gc_threshold, 0);
  EXPECT_EQ(config.fraction, 1);
  EXPECT_EQ(config.backend->name, "vmm");
}

TEST(AllocConfigTest, ReadsEveryKey) {
  const AllocConfig config =
      parse_alloc_config("backend:native,max_split_size_mb:64,gc_threshold:0.8,fraction:0.5");
  EXPECT_EQ(config.max_split_bytes, std::size_t{64} << 20);
  EXPECT_DOUBLE_EQ(config.gc_threshold, 0.8);
  EXPECT_DOUBLE_EQ(config.fraction, 0.5);
}

TEST(AllocConfigTest, AShareMayBeTheWhole) {
  const AllocConfig whole = parse_alloc_config("fraction:1,gc_threshold:1.0");
  EXPECT_EQ(whole.fraction, 1);
  EXPECT_EQ(whole.gc_threshold, 1);
  EXPECT_DOUBLE_EQ(parse_alloc_config("fraction:0.001").fraction, 0.001);
}

TEST(AllocConfigTest, TakesTorchsSpellings) {
  const AllocConfig config = parse_alloc_config(
      "garbage_collection_threshold:0.6,per_process_memory_fraction:0.25,"
      "pinned_use_cuda_host_register:False,pinned_num_register_threads:8,"
      "pinned_reserve_segment_size_mb:32");
  EXPECT_DOUBLE_EQ(config.gc_threshold, 0.6);
  EXPECT_DOUBLE_EQ(config.fraction, 0.25);
  EXPECT_EQ(config.pinned_register, false);
  EXPECT_EQ(config.pinned_threads, 8);
  EXPECT_EQ(config.pinned_reserve_bytes, std::size_t{32} << 20);
}

TEST(AllocConfigTest, SpacesDoNotCount) {
  const AllocConfig config = parse_alloc_config(
      " backend: native, max_split_size_mb : 64,garbage_collection_threshold:0.6 , "
      "roundup_power2_divisions:[256: 1, 512 :2, > : 8]");
  EXPECT_EQ(config.backend->name, std::string_view("native"));
  EXPECT_EQ(config.max_split_bytes, std::size_t{64} << 20);
  EXPECT_DOUBLE_EQ(config.gc_threshold, 0.6);
  EXPECT_THAT(config.without_effect, ElementsAre("roundup_power2_divisions"));
  EXPECT_DOUBLE_EQ(parse_alloc_config("  ").fraction, 1);
  EXPECT_THROW(parse_alloc_config("fraction 0.5"), InvalidArgument);
  EXPECT_THROW(parse_alloc_config(" , fraction:0.5"), InvalidArgument);
}

TEST(AllocConfigTest, AcceptsRoundingThatHasNoEffect) {
  for (const char* const value : {"1", "4", "[256:1,512:2,1024:4,>:8]", "[>:4]"}) {
    const AllocConfig config = parse_alloc_config(
        "gc_threshold:0.5,roundup_power2_divisions:" + std::string(value) + ",fraction:0.25");
    EXPECT_THAT(config.without_effect, ElementsAre("roundup_power2_divisions")) << value;
    EXPECT_DOUBLE_EQ(config.gc_threshold, 0.5);
    EXPECT_DOUBLE_EQ(config.fraction, 0.25) << value;
  }
  EXPECT_THAT(parse_alloc_config("fraction:0.5").without_effect, IsEmpty());
}

// What a process prints that has made its configuration with these variables.
void make_config(const char* name, const char* value) {
  setenv(name, value, 1);
  static_cast<void>(alloc_config());
  std::exit(0);
}

TEST(AllocConfigTest, SaysWhatIsNotRead) {
  EXPECT_EXIT(make_config("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
              ::testing::ExitedWithCode(0),
              "PYTORCH_CUDA_ALLOC_CONF is set, which gantry does not read; GANTRY_ALLOC_CONF takes "
              "torch's keys");
  EXPECT_EXIT(make_config("PYTORCH_ALLOC_CONF", "backend:native"), ::testing::ExitedWithCode(0),
              "PYTORCH_ALLOC_CONF is set");
  EXPECT_EXIT(make_config("GANTRY_ALLOC_CONF", "roundup_power2_divisions:4"),
              ::testing::ExitedWithCode(0), "roundup_power2_divisions has no effect");
}

TEST(AllocConfigTest, UnderstandsBothKeysOfTheBackend) {
  struct Case {
    const char* text;
    const char* backend;
  };
  for (const Case& c : {
           Case{"expandable_segments:True", "vmm"},
           Case{"expandable_segments:False", "native"},
           Case{"backend:native", "native"},
           Case{"backend:native,expandable_segments:True", "vmm"},
           Case{"expandable_segments:True,backend:native", "vmm"},
           Case{"backend:vmm,expandable_segments:True", "vmm"},
           Case{"backend:cudaMallocAsync", "async"},
           Case{"backend:cudaMallocAsync,expandable_segments:True", "async"},
           Case{"backend:async,expandable_segments:False", "async"},
       }) {
    EXPECT_EQ(parse_alloc_config(c.text).backend->name, c.backend) << c.text;
  }
}

TEST(AllocConfigTest, NamesWhatIsWrong) {
  struct Case {
    const char* text;
    const char* error;
  };
  for (const Case& c : {
           Case{"foo:1",
                "GANTRY_ALLOC_CONF: expected one of the keys backend, expandable_segments, "
                "fraction, gc_threshold, max_split_size_mb, pinned_num_register_threads, "
                "pinned_reserve_segment_size_mb, pinned_use_cuda_host_register, but got 'foo'"},
           Case{"expandable_segments:1",
                "GANTRY_ALLOC_CONF: expandable_segments: expected True or False, but got '1'"},
           Case{"backend:vmm,expandable_segments:False",
                "GANTRY_ALLOC_CONF: expandable_segments: expected True with backend vmm, but got "
                "'False'"},
           Case{"pinned_num_register_threads:0", "GANTRY_ALLOC_CONF: pinned_num_register_threads"},
           Case{"pinned_reserve_segment_size_mb:0",
                "GANTRY_ALLOC_CONF: pinned_reserve_segment_size_mb"},
           Case{"roundup_power2_divisions:3",
                "GANTRY_ALLOC_CONF: roundup_power2_divisions: expected a power of two such as 4, "
                "or a list such as [256:1,>:4], but got '3'"},
           Case{"roundup_power2_divisions:[256:1", "but got '[256:1'"},
           Case{"roundup_power2_divisions:[]", "but got '[]'"},
           Case{"roundup_power2_divisions:[256]", "but got '[256]'"},
           Case{"roundup_power2_divisions:", "but got ''"},
           Case{"backend:none",
                "GANTRY_ALLOC_CONF: backend: expected one of vmm, native, async, "
                "cudaMallocAsync, but got 'none'"},
           Case{"fraction", "GANTRY_ALLOC_CONF: expected key:value, but got 'fraction'"},
           Case{"fraction:0.5,,gc_threshold:0.5",
                "GANTRY_ALLOC_CONF: expected key:value, but got ''"},
           Case{"fraction:0",
                "GANTRY_ALLOC_CONF: fraction: expected a number above 0 and at most 1, but got "
                "'0'"},
           Case{"fraction:-0.5", "fraction: expected a number above 0 and at most 1"},
           Case{"fraction:1.001", "fraction: expected a number above 0 and at most 1"},
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
