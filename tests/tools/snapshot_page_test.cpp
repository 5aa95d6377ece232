// The text of a page; snapshot_browser_test.py opens it.
#include "tools/snapshot/page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>

#include "tests/snapshots/snapshot_samples.hpp"
#include "tools/program/content_policy.hpp"

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

// A browser runs and applies what the policy names, and nothing else.
TEST(SnapshotPageTest, ThePolicyNamesItsScriptAndItsStyleAlone) {
  const std::string page = page_of(testing::awkward_snapshot());
  const std::size_t policy = page.find(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'sha256-");
  ASSERT_NE(policy, std::string::npos);
  EXPECT_LT(policy, page.find("<style>"));
  const std::string text = page.substr(policy, page.find('>', policy) - policy);
  EXPECT_THAT(text, HasSubstr("; style-src 'sha256-"));
  EXPECT_THAT(text, Not(HasSubstr("unsafe")));
  std::size_t digests = 0;
  for (std::size_t at = 0; (at = text.find("'sha256-", at)) != std::string::npos; ++at) ++digests;
  EXPECT_EQ(digests, 2U);
  for (const char* forbidden : {" style=\"", " onclick", " onload", "javascript:"}) {
    EXPECT_THAT(page, Not(HasSubstr(forbidden)));
  }
  EXPECT_THAT(page, Not(HasSubstr("POLICY")));
}

TEST(ContentPolicyTest, HasTheDigestsOfInlineElements) {
  EXPECT_EQ(content_policy({"<p>a</p>"}),
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
            "'none'; style-src 'none'; base-uri 'none'; form-action 'none'\">");
  // printf abc | openssl sha256 -binary | base64
  EXPECT_THAT(
      content_policy({"<style>abc</style><script type=\"x\">y</script>", "<script></script>"}),
      HasSubstr("script-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "
                "style-src 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='; "));
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
