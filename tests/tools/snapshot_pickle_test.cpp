#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/memory/snapshot.hpp>

#include "tests/snapshots/snapshot_samples.hpp"
#include "tests/support/subprocess.hpp"
#include "tools/snapshot/pickle_writer.hpp"
#include "tools/snapshot/torch_pickle.hpp"

namespace gantry::snapshot {
namespace {

using memory::Snapshot;

using namespace std::string_view_literals;

// Python reads a pickle here; without Python only the bytes are checked.
constexpr std::string_view kPython = GANTRY_TEST_PYTHON;
#define GANTRY_REQUIRE_PYTHON() \
  if (kPython.empty()) GTEST_SKIP() << "Python 3 was not found"

class SnapshotPickleTest : public ::testing::Test {
 protected:
  std::string python(const std::vector<std::string>& arguments) {
    testing::Command command{.argv = {std::string(kPython)}};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    const testing::Outcome outcome = testing::run_command(std::move(command));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    return outcome.out;
  }
  /// Python's view of a pickle that `write` writes.
  template <class Write>
  std::string repr_of(Write&& write) {
    const auto path = folder_ / "value.pickle";
    {
      std::ofstream file(path, std::ios::binary);
      PickleWriter pickle(file);
      pickle.begin();
      write(pickle);
      pickle.end();
    }
    return python({"-c", "import pickle, sys; print(ascii(pickle.load(open(sys.argv[1], 'rb'))))",
                   path.string()});
  }
  std::string check(const Snapshot& snapshot) {
    {
      std::ofstream file(folder_ / "x.pickle", std::ios::binary);
      write_pickle(snapshot, file);
    }
    save_snapshot(snapshot, folder_ / "x.json");
    return python(
        {GANTRY_TEST_PICKLE_CHECK, (folder_ / "x.pickle").string(), (folder_ / "x.json").string()});
  }

  testing::TemporaryFolder folder_;
};

TEST_F(SnapshotPickleTest, WritesTheBytesOfProtocol2) {
  std::ostringstream out;
  PickleWriter pickle(out);
  pickle.begin();
  pickle.dictionary();
  pickle.open();
  pickle.text("a");
  pickle.list_of(std::vector{1, 2}, [&](int value) { pickle.integer(value); });
  pickle.text("b");
  pickle.text("a");
  pickle.set_items();
  pickle.end();
  EXPECT_EQ(out.str(),
            "\x80\x02}(X\x01\0\0\0aq\x00](K\x01K\x02"
            "eX\x01\0\0\0bq\x01h\x00u."sv);
}

TEST_F(SnapshotPickleTest, NumbersKeepTheirValue) {
  GANTRY_REQUIRE_PYTHON();
  std::vector<std::int64_t> whole;
  std::vector<std::uint64_t> natural;
  for (int bit = 0; bit < 64; ++bit) {
    for (const int step : {-1, 0, 1}) {
      natural.push_back((std::uint64_t{1} << bit) + static_cast<std::uint64_t>(step));
      whole.push_back(static_cast<std::int64_t>(natural.back()));
    }
  }
  whole.push_back(std::numeric_limits<std::int64_t>::min());
  std::string expected;
  const auto list = [](const auto& values) {
    std::string text;
    for (const auto value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
    return text + "]\n";
  };
  EXPECT_EQ(repr_of([&](PickleWriter& pickle) {
              pickle.list_of(whole, [&](std::int64_t value) { pickle.integer(value); });
            }),
            list(whole));
  EXPECT_EQ(repr_of([&](PickleWriter& pickle) {
              pickle.list_of(natural, [&](std::uint64_t value) { pickle.natural(value); });
            }),
            list(natural));
  EXPECT_EQ(
      repr_of([](PickleWriter& pickle) {
        pickle.list_of(std::vector{0.0, -1.5, 1e300}, [&](double value) { pickle.real(value); });
      }),
      "[0.0, -1.5, 1e+300]\n");
}

TEST_F(SnapshotPickleTest, TextsAndSharingSurvive) {
  GANTRY_REQUIRE_PYTHON();
  EXPECT_EQ(repr_of([](PickleWriter& pickle) {
              const std::vector<std::string> texts = {"",
                                                      "\"'\\\n",
                                                      "\xC3\xBC",
                                                      "\xFF"
                                                      "x",
                                                      "",
                                                      "\xED\xA0\x80"};
              pickle.list_of(texts, [&](const std::string& text) { pickle.text(text); });
            }),
            "['', '\"\\'\\\\\\n', '\\xfc', '\\ufffdx', '', '\\ufffd\\ufffd\\ufffd']\n");
  // More texts than one byte can number, and more elements than one batch.
  EXPECT_EQ(repr_of([](PickleWriter& pickle) {
              std::vector<int> numbers(2 * PickleWriter::kBatch + 1);
              for (std::size_t i = 0; i < numbers.size(); ++i)
                numbers[i] = static_cast<int>(i % 700);
              pickle.list_of(numbers, [&](int value) { pickle.text(std::to_string(value)); });
            }),
            [] {
              std::string text;
              for (std::size_t i = 0; i < 2 * PickleWriter::kBatch + 1; ++i) {
                text += (text.empty() ? "['" : ", '") + std::to_string(i % 700) + "'";
              }
              return text + "]\n";
            }());
}

TEST(Utf8Test, ReplacesOnlyWhatIsNoUtf8) {
  const std::string replacement = "\xEF\xBF\xBD";
  for (const char* good : {"", "plain", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(valid_utf8(good), good);
  }
  EXPECT_EQ(valid_utf8("\x80"), replacement);
  EXPECT_EQ(valid_utf8("\xC0\xAF"), replacement + replacement);
  EXPECT_EQ(valid_utf8("\xE0\x9F\x80"), replacement + replacement + replacement);
  EXPECT_EQ(valid_utf8("a\xE2\x82"), "a" + replacement + replacement);
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), replacement + replacement + replacement + replacement);
  EXPECT_EQ(valid_utf8("\xF5"
                       "b"),
            replacement + "b");
}

TEST_F(SnapshotPickleTest, HasTorchsSchema) {
  GANTRY_REQUIRE_PYTHON();
  EXPECT_EQ(check(testing::awkward_snapshot()), "1 [9, 0, 0]\n");
  EXPECT_EQ(check(Snapshot{}), "0 []\n");
}

TEST_F(SnapshotPickleTest, HoldsALongHistory) {
  GANTRY_REQUIRE_PYTHON();
  const Snapshot snapshot = testing::random_snapshot(2, 6000);
  EXPECT_THAT(check(snapshot),
              ::testing::StartsWith(std::to_string(snapshot.segments.size()) + " [" +
                                    std::to_string(snapshot.device_traces[0].size())));
}

TEST_F(SnapshotPickleTest, EqualStacksAreWrittenOnce) {
  const Snapshot small = testing::random_snapshot(2, 1000);
  std::ostringstream out;
  write_pickle(small, out);
  const std::string bytes = out.str();
  // Once as a text; names of files and keys are texts, too.
  for (const std::string_view text :
       {"recorded_heap.hpp"sv, "free_requested"sv, "user_metadata"sv}) {
    const auto first = bytes.find(text);
    if (first == std::string::npos) continue;  // no debug information
    EXPECT_EQ(bytes.find(text, first + 1), std::string::npos) << text;
  }
  EXPECT_LT(bytes.size(), 120 * (small.device_traces[0].size() + small.device_traces[1].size()));
}

}  // namespace
}  // namespace gantry::snapshot
