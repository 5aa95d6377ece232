// The text of a page; snapshot_browser_test.py opens it.
#include "tools/snapshot/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>

#include "tests/memory/trace/snapshot_samples.hpp"

namespace gantry::snapshot {
namespace {

using memory::Snapshot;
using ::testing::HasSubstr;
using ::testing::Not;

std::string page_of(const Snapshot& snapshot) {
  std::ostringstream out;
  write_page(snapshot, out);
  return out.str();
}

std::string_view element_of(std::string_view page, std::string_view begin) {
  const auto from = page.find(begin) + begin.size();
  return page.substr(from, page.find("</script>", from) - from);
}

TEST(SnapshotPageTest, IsCompleteInOneFile) {
  const std::string page = page_of(testing::random_snapshot(1, 300));
  for (const char* foreign :
       {"http:", "https:", "src=", "<link", "@import", "fetch(", "XMLHttpRequest", "import(",
        "/*STYLE*/", "/*SCRIPT*/", "<!--SNAPSHOT-->"}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
  EXPECT_THAT(page, HasSubstr("<title>gantry memory snapshot</title>"));
  EXPECT_THAT(page, HasSubstr("class DeviceModel"));
  EXPECT_THAT(page, HasSubstr("class SegmentMap"));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(SnapshotPageTest, TextsCannotLeaveTheirElement) {
  const std::string page = page_of(testing::awkward_snapshot());
  const std::string_view names = element_of(page, "id=\"names\">");
  EXPECT_EQ(names.find('<'), std::string::npos);
  EXPECT_THAT(std::string(names), HasSubstr(R"("metadata":["","\u003c/script>'\"\t"])"));
  std::size_t scripts = 0;
  for (std::size_t at = 0; (at = page.find("</script>", at)) != std::string::npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 3U);
}

TEST(SnapshotPageTest, AnEventTakesFewBytes) {
  const Snapshot snapshot = testing::random_snapshot(4, 20'000);
  const std::size_t events = snapshot.device_traces[0].size() + snapshot.device_traces[1].size();
  const std::string page = page_of(snapshot);
  const std::string_view numbers = element_of(page, "id=\"numbers\">");
  EXPECT_GT(numbers.size(), 4 * events);
  EXPECT_LT(numbers.size(), 24 * events);
}

}  // namespace
}  // namespace gantry::snapshot
