#include "launcher/run/hosts/hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include <gantry/core/error.hpp>

namespace gantry::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts(const std::vector<Host>& hosts) {
  std::vector<std::string> result;
  for (const Host& host : hosts) {
    result.push_back(host.name + (host.ranks ? ":" + std::to_string(*host.ranks) : ""));
  }
  return result;
}

template <class Function>
std::string error_of(const Function& function) {
  try {
    (void)function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

class HostfileTest : public ::testing::Test {
 protected:
  HostfileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "hosts-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~HostfileTest() override { std::filesystem::remove_all(directory_); }
  std::string write(const std::string& text) const {
    std::ofstream(directory_ + "/hosts") << text;
    return directory_ + "/hosts";
  }
  std::string directory_;
};

TEST(HostsTest, HostsAreNamesWithNumbersOfRanks) {
  EXPECT_THAT(texts(parse_hosts("a:4,b.c-d_e:1", "--hosts")), ElementsAre("a:4", "b.c-d_e:1"));
  EXPECT_THAT(texts(parse_hosts("a,b", "--hosts")), ElementsAre("a", "b"));
  const auto error = [](std::string_view text) {
    return error_of([&] { return parse_hosts(text, "--hosts"); });
  };
  EXPECT_EQ(error(""), "--hosts: expected hosts such as node1:4,node2:4, but got ''");
  EXPECT_EQ(error("a:4,,b:4"), "--hosts: expected hosts such as node1:4,node2:4, but got ''");
  EXPECT_EQ(error("-x:4"), "--hosts: expected hosts such as node1:4,node2:4, but got '-x:4'");
  EXPECT_EQ(error("a;b"), "--hosts: expected hosts such as node1:4,node2:4, but got 'a;b'");
  EXPECT_EQ(error("a:4,a:2"), "--hosts: expected every host once, but got a again");
  EXPECT_EQ(error("a:4,b"),
            "--hosts: expected a number of ranks for every host or for none, but got none for b");
  EXPECT_THAT(error("a:0"), HasSubstr("--hosts"));
  EXPECT_THAT(error("a:x"), HasSubstr("'x'"));
  EXPECT_THAT(error("a:5000"), HasSubstr("5000"));
}

TEST_F(HostfileTest, ALineIsAHost) {
  EXPECT_THAT(texts(read_hostfile(write("# the machines\nnode1 slots=4\n\nnode2:2 # half\n"))),
              ElementsAre("node1:4", "node2:2"));
  const auto error = [&](const std::string& text) {
    const std::string path = write(text);
    std::string message = error_of([&] { return read_hostfile(path); });
    const auto at = message.find(directory_);
    return at == std::string::npos ? message : message.replace(at, directory_.size(), "D");
  };
  EXPECT_EQ(error("node1\nnode2 max=3\n"),
            "--hostfile: line 2 of 'D/hosts': expected 'name slots=4', but got 'max=3'");
  EXPECT_EQ(error("node1:2 slots=3\n"),
            "--hostfile: line 1 of 'D/hosts': expected 'name slots=4', but got 'slots=3'");
  EXPECT_EQ(error("# nobody\n"), "--hostfile: expected hosts in 'D/hosts', but got none");
  EXPECT_EQ(error("a slots=2\na slots=2\n"),
            "--hostfile: expected every host once, but got a again");
  EXPECT_THAT(error_of([&] { return read_hostfile(directory_ + "/missing"); }),
              HasSubstr("/missing': No such file or directory"));
  EXPECT_THAT(error_of([&] { return read_hostfile(directory_); }), HasSubstr("directory"));
}

TEST(HostsTest, NodelistsAreExpanded) {
  EXPECT_THAT(texts(expand_nodelist("gpu[003-005,9],login1")),
              ElementsAre("gpu003", "gpu004", "gpu005", "gpu9", "login1"));
  EXPECT_THAT(texts(expand_nodelist("r[1-2]n[08-09]x")),
              ElementsAre("r1n08x", "r1n09x", "r2n08x", "r2n09x"));
  EXPECT_THAT(texts(expand_nodelist("")), ElementsAre());
  for (const char* text : {"gpu[1-", "gpu[]", "gpu[3-1]", "a,,b", "gpu[x-y]", "gpu[1-99999999]"}) {
    EXPECT_EQ(error_of([&] { return expand_nodelist(text); }),
              std::string("SLURM_JOB_NODELIST: expected nodes such as gpu[003-005,9], but got '") +
                  text + "'");
  }
}

TEST(HostsTest, KnowsThisMachine) {
  std::array<char, 256> own{};
  ASSERT_EQ(gethostname(own.data(), own.size() - 1), 0);
  for (const std::string& name : std::vector<std::string>{"localhost", "127.0.0.1", own.data()}) {
    EXPECT_TRUE(is_this_machine(name)) << name;
    EXPECT_EQ(address_for({{name, 1}}), "127.0.0.1") << name;
  }
  EXPECT_FALSE(is_this_machine("no-such-host"));
  EXPECT_FALSE(is_this_machine(""));
}

}  // namespace
}  // namespace gantry::launcher
