#include <gantry/machine/visible_devices.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One question put to the driver, and its answer.
struct Row {
  std::string text;  ///< the line
  bool is_set = true;
  std::string value;  ///< of CUDA_VISIBLE_DEVICES
  std::string order;  ///< of CUDA_DEVICE_ORDER, empty if unset
  int status = 0;     ///< of cuInit: 0, 100 (no device) or 101 (invalid device)
  std::vector<std::string> buses;
};

// Undoes printf %q: 'a', $'a\t' and backslashes.
std::string unquote(const std::string& quoted) {
  if (quoted == "''") return "";
  const bool ansi = quoted.starts_with("$'") && quoted.ends_with("'");
  const std::string body = ansi ? quoted.substr(2, quoted.size() - 3) : quoted;
  std::string result;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      result += body[i];
      continue;
    }
    const char next = body.at(++i);
    result += ansi && next == 't' ? '\t' : ansi && next == 'n' ? '\n' : next;
  }
  return result;
}

// The first shell word of `text`; `end` becomes the position after it.
std::string first_word(const std::string& text, std::size_t& end) {
  bool quoted = false;
  for (end = 0; end < text.size(); ++end) {
    if (text[end] == '\\') {
      ++end;
    } else if (text[end] == '\'') {
      quoted = !quoted;
    } else if (text[end] == ' ' && !quoted) {
      break;
    }
  }
  end = std::min(end, text.size());
  return text.substr(0, end);
}

Row parse_row(const std::string& line) {
  const auto arrow = line.find("-> rc=");
  if (arrow == std::string::npos) throw std::runtime_error("no answer in: " + line);
  Row row;
  row.text = line;
  const std::string question = line.substr(0, arrow);
  std::size_t end = 0;
  const std::string word = first_word(question, end);
  row.is_set = word != "unset";
  if (row.is_set) row.value = unquote(word);
  std::istringstream(question.substr(end)) >> row.order;
  std::istringstream answer(line.substr(arrow + 6));
  std::string count;
  answer >> row.status >> count;
  for (std::string bus; answer >> bus;) row.buses.push_back(bus);
  if (count != "n=" + std::to_string(row.buses.size()))
    throw std::runtime_error("bad row: " + line);
  return row;
}

std::vector<Row> recorded_rows() {
  std::ifstream file(GANTRY_TEST_DATA_DIR "/cuda_visible_devices_2xH200.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') rows.push_back(parse_row(line));
  }
  return rows;
}

std::vector<DeviceIdentity> two_devices() {
  return {{.uuid = "GPU-aaaaaaaa-0000-4000-8000-000000000000", .pci_bus_id = "0000:00:06.0"},
          {.uuid = "GPU-bbbbbbbb-0000-4000-8000-000000000001", .pci_bus_id = "0000:00:07.0"}};
}

TEST(VisibleDevicesTest, AnswersAsTheDriverDidOnTwoGpus) {
  const std::vector<Row> rows = recorded_rows();
  ASSERT_GT(rows.size(), 45u);
  const std::vector<DeviceIdentity> all = two_devices();
  for (const Row& row : rows) {
    if (!row.is_set) continue;  // unset: nothing to parse, all devices are visible
    const VisibleDevices result = parse_visible_devices(row.value, all);
    const bool invalid = result.invalid() || !is_valid_device_order(row.order);
    EXPECT_EQ(invalid, row.status == 101) << row.text;
    std::vector<std::string> buses;
    if (!invalid) {
      for (const int i : result.visible) {
        buses.push_back(all.at(static_cast<std::size_t>(i)).pci_bus_id);
      }
    }
    EXPECT_EQ(buses, row.buses) << row.text;
    if (row.status == 101) {
      EXPECT_TRUE(result.invalid() ? result.visible.empty() : !row.order.empty()) << row.text;
    }
  }
}

TEST(VisibleDevicesTest, ReasonsNameEveryTokenThatShowsNothing) {
  const auto all = two_devices();
  const VisibleDevices result = parse_visible_devices("0,9,1", all);
  EXPECT_THAT(result.visible, ElementsAre(0));
  ASSERT_EQ(result.dropped.size(), 2u);
  EXPECT_EQ(result.dropped[0].token, "9");
  EXPECT_EQ(result.dropped[0].reason, "there are only 2 devices");
  EXPECT_EQ(result.dropped[1].token, "1");
  EXPECT_EQ(result.dropped[1].reason, "the list ended before it");
}

TEST(VisibleDevicesTest, ReasonsTellWhatIsWrong) {
  const auto all = two_devices();
  const auto reason = [&](const char* value) {
    const VisibleDevices result = parse_visible_devices(value, all);
    return result.dropped.empty() ? std::string("nothing dropped") : result.dropped[0].reason;
  };
  EXPECT_EQ(reason("-1"), "a negative number ends the list");
  EXPECT_EQ(reason("all"), "not a number");
  EXPECT_EQ(reason(",0"), "an empty entry ends the list");
  EXPECT_EQ(reason("GPU-"), "more than one device has a UUID that begins so");
  EXPECT_EQ(reason("GPU-ffffffff"), "no device has a UUID that begins so");
  EXPECT_EQ(reason("GPU-bbbbbbbb,0"), "expected GPU-…, as in the first entry");
  EXPECT_EQ(reason("GPU-BBBBBBBB"), "nothing dropped") << "digits in either case";
  EXPECT_EQ(reason("gpu-bbbbbbbb"), "not a number");
  EXPECT_EQ(reason("MIG-bbbbbbbb"), "no device has a UUID that begins so");
  EXPECT_EQ(reason("0,1,0"), "names device 0 a second time");
  EXPECT_EQ(reason("1,0,"), "nothing dropped");
  EXPECT_EQ(reason(""), "nothing dropped");
}

TEST(VisibleDevicesTest, OrdinalsOfAnySizeDoNotWrapAround) {
  // Powers of two end in the first device, if a number of their bits wraps.
  for (const char* const ordinal :
       {"2147483648", "4294967296", "4294967297", "9223372036854775808", "18446744073709551616",
        "18446744073709551617", "340282366920938463463374607431768211456"}) {
    for (const std::string sign : {"", "+", "-"}) {
      const VisibleDevices result = parse_visible_devices(sign + ordinal, two_devices());
      EXPECT_THAT(result.visible, IsEmpty()) << sign << ordinal;
      ASSERT_EQ(result.dropped.size(), 1u) << sign << ordinal;
      EXPECT_EQ(result.dropped[0].reason,
                sign == "-" ? "a negative number ends the list" : "there are only 2 devices");
    }
  }
}

TEST(VisibleDevicesTest, NamingADeviceTwiceHidesAll) {
  const VisibleDevices result = parse_visible_devices("1,0,1", two_devices());
  EXPECT_TRUE(result.invalid());
  EXPECT_THAT(result.visible, IsEmpty());
  ASSERT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.dropped[0].token, "1");
}

TEST(VisibleDevicesTest, RepetitionAfterTheEndIsHarmless) {
  const VisibleDevices result = parse_visible_devices("0,x,0", two_devices());
  EXPECT_FALSE(result.invalid());
  EXPECT_THAT(result.visible, ElementsAre(0));
}

TEST(VisibleDevicesTest, ShowsOneMigDeviceOnly) {
  const std::vector<DeviceIdentity> all{
      {.uuid = "MIG-11111111-0000-4000-8000-000000000000", .pci_bus_id = {}},
      {.uuid = "MIG-22222222-0000-4000-8000-000000000000", .pci_bus_id = {}}};
  const VisibleDevices result = parse_visible_devices("MIG-2,MIG-1", all);
  EXPECT_THAT(result.visible, ElementsAre(1));
  ASSERT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.dropped[0].reason, "a process sees one MIG device only");
}

TEST(VisibleDevicesTest, WithoutDevicesNothingIsVisible) {
  for (const char* value : {"", "0", "GPU-a", "0,0"}) {
    const VisibleDevices result = parse_visible_devices(value, {});
    EXPECT_THAT(result.visible, IsEmpty()) << value;
    EXPECT_FALSE(result.invalid()) << value;
  }
}

// Any permutation of distinct ordinals comes back in its order.
TEST(VisibleDevicesTest, KeepsTheOrderOfEveryPermutation) {
  std::vector<DeviceIdentity> all(5);
  std::vector<int> order{0, 1, 2, 3, 4};
  do {
    std::string value;
    for (const int i : order) value += (value.empty() ? "" : ",") + std::to_string(i);
    EXPECT_EQ(parse_visible_devices(value, all).visible, order);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(VisibleDevicesTest, KnowsTheDeviceOrders) {
  EXPECT_TRUE(is_valid_device_order("PCI_BUS_ID"));
  EXPECT_TRUE(is_valid_device_order("FASTEST_FIRST"));
  EXPECT_FALSE(is_valid_device_order("bogus"));
  EXPECT_FALSE(is_valid_device_order("pci_bus_id"));
}

}  // namespace
}  // namespace gantry
