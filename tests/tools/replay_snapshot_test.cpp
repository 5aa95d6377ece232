// The readers of logs: pickles, JSON snapshots, RMM's CSV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <gantry/core/error.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "tests/support/subprocess.hpp"
#include "tools/replay/log_file.hpp"
#include "tools/replay/worker.hpp"
#include "tools/snapshot/pickle_reader.hpp"

namespace gantry::replay {
namespace {

using namespace std::string_literals;
using snapshot::JsonDocument;
using snapshot::kind_of;
using snapshot::parse_json;
using snapshot::read_pickle;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

std::string pickle_error(const std::string& bytes) {
  return error_of([&] { (void)read_pickle(bytes); });
}

// Two live blocks from before, of which one is freed, and a history with a stream.
constexpr const char* kSnapshot = R"({
  "segments": [
    {"device": 0, "address": 4096, "total_size": 4096, "stream": 0, "segment_type": "small",
     "blocks": [
       {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated"},
       {"address": 5120, "size": 2048, "requested_size": 2000, "state": "active_allocated"},
       {"address": 7168, "size": 1024, "state": "inactive"}]},
    {"device": 1, "address": 9999, "stream": 0, "blocks": []}],
  "device_traces": [[
    {"action": "segment_alloc", "addr": 4096, "size": 4096, "stream": 0},
    {"action": "free_requested", "addr": 7168, "size": 512, "stream": 0},
    {"action": "free_completed", "addr": 7168, "size": 512, "stream": 0},
    {"action": "alloc", "addr": 5120, "size": 2000, "stream": 77},
    {"action": "alloc", "addr": 7168, "size": 300, "stream": 0},
    {"action": "oom", "device_free": 12, "size": 300, "stream": 0},
    {"action": "free_requested", "addr": 7168, "size": 300, "stream": 0},
    {"action": "snapshot", "addr": 0, "size": 0, "stream": 0}], []]
})";

AllocationSequence expected_of_snapshot() {
  AllocationSequence expected;
  expected.name = "snap";
  const auto freed = expected.allocate(512);  // was live before, freed in the history
  expected.allocate(1000);                    // was live before and stays
  expected.free(freed);
  expected.allocate(2000, 1);
  const auto last = expected.allocate(300);
  expected.free(last);
  return expected;
}

TEST(SnapshotTest, HistoryBecomesASequence) {
  EXPECT_EQ(read_snapshot(parse_json(kSnapshot), "snap"), expected_of_snapshot());
}

TEST(SnapshotTest, RequestsCountWhereBlocksAreRoundedUp) {
  AllocationSequence expected;
  expected.name = "snap";
  const auto before = expected.allocate(500);
  const auto block = expected.allocate(1000);
  expected.free(block);
  expected.free(before);
  EXPECT_EQ(read_snapshot(parse_json(R"({"device_traces": [[
    {"action": "alloc", "addr": 4096, "size": 1024, "stream": 0, "requested_size": 1000},
    {"action": "free_requested", "addr": 4096, "size": 1024, "stream": 0, "requested_size": 1000},
    {"action": "free_requested", "addr": 8192, "size": 512, "stream": 0, "requested_size": 500}]]
    })"),
                          "snap"),
            expected);
}

// The sequence of events of one size on one stream: "a4096 r4096 c4096", where the letters are
// alloc, free_requested and free_completed.
AllocationSequence sequence_of(const std::string& events, const std::string& segments = "[]") {
  std::string entries;
  std::istringstream words(events);
  for (std::string word; words >> word;) {
    const char* action = word[0] == 'a'   ? "alloc"
                         : word[0] == 'r' ? "free_requested"
                                          : "free_completed";
    entries += fmt::format(R"({}{{"action": "{}", "addr": {}, "size": 512, "stream": 0}})",
                           entries.empty() ? "" : ",", action, word.substr(1));
  }
  return read_snapshot(
      parse_json(fmt::format(R"({{"segments": {}, "device_traces": [[{}]]}})", segments, entries)),
      "s");
}

// As a list: block numbers of allocations, negative ones minus 1 of frees.
std::vector<int> steps_of(const std::string& events, const std::string& segments = "[]") {
  std::vector<int> steps;
  for (const AllocationOp& op : sequence_of(events, segments).ops) {
    const int block = static_cast<int>(op.block);
    steps.push_back(op.is_allocation() ? block : -block - 1);
  }
  return steps;
}

TEST(SnapshotTest, CompletionsAloneAreTheFrees) {
  using Steps = std::vector<int>;
  EXPECT_EQ(steps_of("a1 a2 c1 a1 c2 c1"), (Steps{0, 1, -1, 2, -2, -3}));
  EXPECT_EQ(steps_of("a1 a2 r1 c1 a1 r2 c2 r1 c1"), (Steps{0, 1, -1, 2, -2, -3}));
  EXPECT_EQ(sequence_of("a1 c1 a1 c1").unmatched_frees, 0U);
  EXPECT_EQ(facts_of(sequence_of("a1 c1 a2 c2 a3 c3")).live_blocks_at_end, 0U);
  EXPECT_EQ(facts_of(sequence_of("a1 c1 a2 c2 a3 c3")).peak_live_bytes, 512U);
  // A block from before the history.
  EXPECT_EQ(steps_of("a1 c7 a7 c7"), (Steps{0, 1, -1, 2, -3}));
  const std::string live = R"([{"device": 0, "address": 7, "stream": 0, "blocks": [
      {"size": 512, "state": "active_allocated"}]}])";
  EXPECT_EQ(steps_of("c7 a7", live), (Steps{0, -1, 1}));
  EXPECT_EQ(steps_of("a1 c1", live), (Steps{0, 1, -2}));
}

TEST(SnapshotTest, ACompletionEndsABlockOnce) {
  using Steps = std::vector<int>;
  // Its request was before the history.
  EXPECT_EQ(steps_of("c1 a1 r1 c1"), (Steps{0, -1}));
  // The address is in use again when the completion is noted.
  EXPECT_EQ(steps_of("a1 r1 a1 c1 r1 c1"), (Steps{0, -1, 1, -2}));
  // A block without a request in a history that has some.
  EXPECT_EQ(steps_of("a1 r1 c1 a2 c2 a2"), (Steps{0, -1, 1, -2, 2}));
  EXPECT_EQ(steps_of("a1 r1 c1 c1 a1"), (Steps{0, -1, 1}));
}

TEST(SnapshotTest, ChoosesTheDeviceWithAHistory) {
  EXPECT_THAT(error_of([] { (void)read_snapshot(parse_json(kSnapshot), "s", 7); }),
              HasSubstr("it has 2 devices, but not device 7"));
  EXPECT_TRUE(read_snapshot(parse_json(kSnapshot), "s", 1).ops.empty());
  EXPECT_THAT(
      error_of([] { (void)read_snapshot(parse_json(R"({"device_traces": [[], []]})"), "s"); }),
      HasSubstr("no device has a history; start it with record_history"));
}

TEST(SnapshotTest, RefusesWhatIsNoSnapshot) {
  const auto refused = [](const std::string& text) {
    return error_of([&] { (void)read_snapshot(parse_json(text), "s"); });
  };
  EXPECT_THAT(refused("[1, 2]"), HasSubstr("a dictionary with a list 'device_traces'"));
  EXPECT_THAT(refused(R"({"device_traces": [[{"action": "alloc", "addr": "x", "size": 1}]]})"),
              HasSubstr("expected a whole number 'addr', but got a text"));
  EXPECT_THAT(refused(R"({"device_traces": [[{"action": "alloc", "addr": 18446744073709551615,
                         "size": 1}]]})"),
              HasSubstr("whole number 'addr', but got a whole number of 2^63 or more"));
  EXPECT_THAT(refused(R"({"device_traces": [[{"addr": 1}]]})"),
              HasSubstr("expected a text 'action', but got none"));
  EXPECT_THAT(refused(R"({"device_traces": [[{"action": "alloc", "addr": 1, "size": -4,
                         "stream": 0}]]})"),
              HasSubstr("a size is at least 0, but got -4"));
  EXPECT_THAT(refused(R"({"device_traces": [[
        {"action": "alloc", "addr": 16, "size": 4, "stream": 0},
        {"action": "alloc", "addr": 16, "size": 4, "stream": 0}]]})"),
              HasSubstr("allocates 0x10 twice without a free between"));
  EXPECT_THAT(refused("{\"device_traces\": "), HasSubstr("JSON"));
  EXPECT_THAT(refused(std::string(100'000, '[')), HasSubstr("JSON"));
}

// Python writes the same data in every protocol.
constexpr const char* kWritePickle = R"(
import json, pickle, sys
data = json.load(open(sys.argv[1]))
protocol = int(sys.argv[3])
data['more'] = [None, True, False, -1, 70000, -2**40, 2**63 - 1, 2**63, 2**64 - 1, -2**63, 1.5, (), (1,), (1, 2), (1, 2, 3),
                (1, 2, 3, 4), 'ü' * 300, {3: 4}] + ([b'bytes', {1, 2}] if protocol > 3 else [])
data['shared'] = [data['segments']] * 3
pickle.dump(data, open(sys.argv[2], 'wb'), protocol=protocol)
)";

TEST(PickleTest, ReadsWhatPythonWrites) {
  const TemporaryFile json(".json");
  std::ofstream(json.path()) << kSnapshot;
  for (int protocol = 2; protocol <= 5; ++protocol) {
    const TemporaryFile pickle(".pickle");
    testing::Outcome outcome;
    try {
      outcome = testing::run_command({.argv = {"python3", "-c", kWritePickle, json.path(),
                                               pickle.path(), std::to_string(protocol)}});
    } catch (const std::system_error&) {
      GTEST_SKIP() << "python3 was not found";
    }
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    AllocationSequence sequence = read_log(pickle.path());
    sequence.name = "snap";
    EXPECT_EQ(sequence, expected_of_snapshot()) << "protocol " << protocol;
  }
}

TEST(PickleTest, ReadsHandWrittenProtocol2) {
  // {"a": [1, -2, 2**40, "x"], "t": (True, None)}, with the memo in use.
  const std::string bytes =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]("
      "K\x01J\xfe\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01X\x01\x00\x00\x00xeX\x01\x00\x00"
      "\x00t\x88N\x86u."s;
  const JsonDocument tree = read_pickle(bytes);
  const JsonDocument::Value& root = tree.at(tree.root());
  const JsonDocument::List* a = tree.list(tree.find(root, "a"));
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->size(), 4U);
  EXPECT_EQ(std::get<std::int64_t>(tree.at((*a)[0])), 1);
  EXPECT_EQ(std::get<std::int64_t>(tree.at((*a)[1])), -2);
  EXPECT_EQ(std::get<std::int64_t>(tree.at((*a)[2])), std::int64_t{1} << 40);
  EXPECT_EQ(std::get<std::string>(tree.at((*a)[3])), "x");
  const JsonDocument::List* t = tree.list(tree.find(root, "t"));
  ASSERT_NE(t, nullptr);
  EXPECT_TRUE(std::get<bool>(tree.at((*t)[0])));
  EXPECT_EQ(kind_of(tree.at((*t)[1])), "None");
}

TEST(PickleTest, NumbersOf64BitsAreReadAsInJson) {
  const auto value = [](const std::string& digits) {
    const JsonDocument tree = read_pickle(
        "\x80\x02\x8a" + std::string(1, static_cast<char>(digits.size())) + digits + ".");
    return tree.at(tree.root());
  };
  const std::string ones(8, '\xff');
  EXPECT_EQ(std::get<std::uint64_t>(value(ones + '\0')), UINT64_MAX);
  EXPECT_EQ(std::get<std::uint64_t>(value(std::string(7, '\0') + '\x80' + '\0')),
            std::uint64_t{1} << 63);
  EXPECT_EQ(std::get<std::uint64_t>(value(ones + std::string(3, '\0'))), UINT64_MAX);
  EXPECT_EQ(std::get<std::int64_t>(value(std::string(7, '\xff') + '\x7f' + '\0')), INT64_MAX);
  EXPECT_EQ(std::get<std::int64_t>(value(std::string(7, '\0') + '\x80')), INT64_MIN);
  EXPECT_EQ(std::get<std::int64_t>(value(ones + '\xff')), -1);
  EXPECT_EQ(std::get<std::int64_t>(value("")), 0);
  // The last byte has the sign of a number of any length.
  for (std::size_t length = 1; length <= 8; ++length) {
    const std::string low(length - 1, '\0');
    const auto top = static_cast<int>(8 * length - 1);
    EXPECT_EQ(std::get<std::int64_t>(value(low + '\x80')), INT64_MIN >> (63 - top)) << length;
    EXPECT_EQ(std::get<std::int64_t>(value(std::string(length, '\xff'))), -1) << length;
    EXPECT_EQ(std::get<std::int64_t>(value(low + '\x40')), std::int64_t{1} << (top - 1)) << length;
  }
  // A frame without a line, as torch writes it.
  const JsonDocument json = parse_json(R"({"line": 18446744073709551615})");
  EXPECT_EQ(std::get<std::uint64_t>(*json.find(json.at(json.root()), "line")), UINT64_MAX);
}

TEST(PickleTest, NeverExecutes) {
  struct Case {
    const char* name;
    std::string bytes;
  };
  for (const Case& test :
       std::vector<Case>{{"GLOBAL", "\x80\x02"s + "cos\nsystem\n."},
                         {"STACK_GLOBAL", "\x80\x04\x8c\x02os\x8c\x06system\x93."s},
                         {"REDUCE", "\x80\x02)R."s},
                         {"BUILD", "\x80\x02}}b."s},
                         {"INST", "\x80\x02("s + "ios\nsystem\n."},
                         {"OBJ", "\x80\x02(o."s},
                         {"NEWOBJ", "\x80\x02))\x81."s},
                         {"NEWOBJ_EX", "\x80\x04))\x92."s},
                         {"EXT1", "\x80\x02\x82\x01."s},
                         {"EXT2", "\x80\x02\x83\x01\x01."s},
                         {"EXT4", "\x80\x02\x84\x01\x01\x01\x01."s},
                         {"PERSID", "\x80\x02P1\n."s},
                         {"BINPERSID", "\x80\x02NQ."s},
                         {"NEXT_BUFFER", "\x80\x05\x97."s}}) {
    EXPECT_THAT(pickle_error(test.bytes),
                HasSubstr(fmt::format("opcode {} would make", test.name)));
  }
}

TEST(PickleTest, RefusesDamage) {
  EXPECT_THAT(pickle_error("hello"), HasSubstr("protocol 2 to 5"));
  EXPECT_THAT(pickle_error("\x80\x06."s), HasSubstr("protocol 2 to 5"));
  EXPECT_THAT(pickle_error("\x80\x02"s), HasSubstr("ends within an entry at byte 2"));
  EXPECT_THAT(pickle_error("\x80\x02X\xff\xff\xff\xff"
                           "abc."s),
              HasSubstr("ends within an entry"));
  EXPECT_THAT(pickle_error("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s),
              HasSubstr("ends within an entry"));
  EXPECT_THAT(pickle_error("\x80\x02."s), HasSubstr("the stack is empty"));
  EXPECT_THAT(pickle_error("\x80\x02Ne."s), HasSubstr("a mark is missing"));
  EXPECT_THAT(pickle_error("\x80\x02N(K\x01"
                           "e."s),
              HasSubstr("no list"));
  EXPECT_THAT(pickle_error("\x80\x02](K\x01u."s), HasSubstr("no dictionary"));
  EXPECT_THAT(pickle_error("\x80\x02(K\x01"
                           "d."s),
              HasSubstr("has no value"));
  EXPECT_THAT(pickle_error("\x80\x02h\x05."s), HasSubstr("memo entry 5 does not exist"));
  EXPECT_THAT(pickle_error("\x80\x02(0."s), HasSubstr("the stack is empty"));
  EXPECT_THAT(pickle_error("\x80\x02\xff."s), HasSubstr("unknown opcode 0xff"));
  EXPECT_THAT(pickle_error("\x80\x02\x8a\x0a\x01\x02\x03\x04\x05\x06\x07\x08\x09\x01."s),
              HasSubstr("more than 64 bits"));
}

TEST(PickleTest, ValuesBelowAMarkAreOutOfReach) {
  // Every opcode that takes or reads a value of the stack.
  for (const std::string& opcode : {"0"s, "2"s, "a"s, "s"s, "\x85"s, "\x86"s, "\x87"s, "q\x00"s,
                                    "r\x00\x00\x00\x00"s, "\x94"s, "."s}) {
    EXPECT_THAT(pickle_error("\x80\x04]}NNN(" + opcode + "1."),
                HasSubstr("the stack is empty at byte 8"))
        << opcode;
  }
  // One value lies above the mark, and the list or dictionary for it below.
  EXPECT_THAT(pickle_error("\x80\x02](Na1."s), HasSubstr("the stack is empty at byte 5"));
  EXPECT_THAT(pickle_error("\x80\x02}(NNs1."s), HasSubstr("the stack is empty at byte 6"));
  EXPECT_THAT(pickle_error("\x80\x02N(N\x86"
                           "1."s),
              HasSubstr("the stack is empty at byte 5"));
  EXPECT_EQ(pickle_error("\x80\x02N(N01."s), "no error");
}

TEST(PickleTest, EveryCutIsAnErrorAndNoCrash) {
  const std::string bytes =
      "\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
      "a\x94]\x94(K\x01\x8a\x02\xff\x00"
      "G?\xf8\x00\x00\x00\x00\x00\x00"
      "e\x8c\x01"
      "b\x94h\x02u."s;
  EXPECT_EQ(pickle_error(bytes), "no error");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(pickle_error(bytes.substr(0, length)), "no error") << length;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(value);
      (void)pickle_error(damaged);  // whatever it says, it says it
    }
  }
}

TEST(PickleTest, ListsMayHoldThemselves) {
  // memo 0 is the list, appended to itself
  const JsonDocument tree = read_pickle(
      "\x80\x02]q\x00h\x00"
      "a."s);
  const auto& list = std::get<JsonDocument::List>(tree.at(tree.root()));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0], tree.root());
}

// A log of these lines.
std::string log_of(std::string_view lines) {
  std::string log = "Thread,Time,Action,Pointer,Size,Stream\n";
  log.append(lines);
  return log;
}

TEST(RmmLogTest, ReadsThreadsAndStreams) {
  const AllocationSequence sequence =
      read_rmm_log(log_of("140,10:00:00.000001,allocate,0x7f0000000000,1000,0x0\r\n"
                          "141,10:00:00.000002,allocate,0x7f0000001000,2000,0x55aa\n"
                          "141,10:00:00.000003,allocate failure,(nil),999999,0x0\n"
                          "141,10:00:00.000003,free,0x7f0000000000,1000,0x0\n"
                          "140,10:00:00.000004,allocate,0x7f0000000000,3000,0\n"
                          "140,10:00:00.000005,free,0x7fdead,1,0\n"
                          "\n"
                          "140,10:00:00.000006,free,0x7f0000001000,2000,0x55aa\n"),
                   "log");
  AllocationSequence expected;
  expected.name = "log";
  const auto a = expected.allocate(1000, 0, 0);
  const auto b = expected.allocate(2000, 1, 1);
  expected.free(a, 0, 1);
  expected.allocate(3000, 0, 0);
  expected.free(b, 1, 0);
  expected.unmatched_frees = 1;
  EXPECT_EQ(sequence, expected);
}

TEST(RmmLogTest, ALastLineThatIsCutOffIsLeftOut) {
  const std::string whole = log_of(
      "1,10:00:00.000001,allocate,0x10,1000,0x0\n"
      "1,10:00:00.000002,allocate,0x20,2000,0x0\n");
  const AllocationSequence complete = read_rmm_log(whole, "log");
  const std::string line = "1,10:00:00.000003,free,0x10,1000,0x0";
  const std::size_t columns = line.rfind(',') + 1;
  for (std::size_t length = 1; length <= columns; ++length) {
    const AllocationSequence cut = read_rmm_log(whole + line.substr(0, length), "log");
    EXPECT_EQ(cut.incomplete_lines, 1U) << length;
    EXPECT_EQ(cut.ops, complete.ops) << length;
  }
  EXPECT_EQ(read_rmm_log(whole + line.substr(0, columns + 2), "log").incomplete_lines, 1U) << "0x";
  const AllocationSequence last = read_rmm_log(whole + line, "log");
  EXPECT_EQ(last.incomplete_lines, 0U) << "a file may end without a line break";
  EXPECT_EQ(last.ops.size(), 3U);
  // Elsewhere such a line is an error.
  EXPECT_THAT(error_of([&] { (void)read_rmm_log(whole + "1,10:00\n", "log"); }),
              HasSubstr("line 4: expected 6 columns, but got 2"));
  EXPECT_THAT(error_of([] { (void)read_rmm_log("Thread,Time,Act", "log"); }),
              HasSubstr("line 1: expected 6 columns, but got 3"));
}

TEST(RmmLogTest, ReadsOlderAndOtherLogs) {
  AllocationSequence expected;
  expected.name = "log";
  const auto block = expected.allocate(1000);
  expected.free(block);
  EXPECT_EQ(read_rmm_log("Time,Action,Pointer,Size,Stream\n"
                         "10:00:00:000001,allocate,0x10,1000,0\n"
                         "10:00:00:000002,free,0x10,1000,0\n",
                         "log"),
            expected)
      << "RMM 0.14";
  EXPECT_EQ(read_rmm_log(log_of("1,10:00:00,allocate,0x10,1000,0x0\n"
                                "1,10:00:00,deallocate,0x10,1000,0x0\n"),
                         "log"),
            expected);
  EXPECT_THAT(error_of([] {
                (void)read_rmm_log("Time,Action,Pointer,Size,Stream\n1,2,allocate,0x1,5,0\n", "l");
              }),
              HasSubstr("line 2: expected 5 columns, but got more"));
}

TEST(RmmLogTest, ErrorsNameTheLine) {
  const auto refused = [](const std::string& lines) {
    return error_of([&] { (void)read_rmm_log(log_of(lines), "log"); });
  };
  EXPECT_THAT(error_of([] { (void)read_rmm_log("", "log"); }), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of([] { (void)read_rmm_log("a,b,c,d,e,f\n", "log"); }),
              HasSubstr("line 1: expected the header"));
  EXPECT_THAT(refused("1,2,allocate,0x1,5\n"), HasSubstr("line 2: expected 6 columns, but got 5"));
  EXPECT_THAT(refused("1,2,allocate,0x1,5,0,9\n"),
              HasSubstr("line 2: expected 6 columns, but got"));
  EXPECT_THAT(refused("1,2,resize,0x1,5,0\n"), HasSubstr("allocate or free, but got 'resize'"));
  EXPECT_THAT(refused("1,2,allocate,0xzz,5,0\n"), HasSubstr("a number as pointer, but got '0xzz'"));
  EXPECT_THAT(refused("1,2,allocate,0x1,5x,0\n"), HasSubstr("a number as size, but got '5x'"));
  EXPECT_THAT(refused("1,2,allocate,0x1,5,0\n1,2,allocate,0x1,5,0\n"),
              HasSubstr("line 3: 0x1 is allocated, but was not freed"));
}

TEST(LogFileTest, TellsKindsApart) {
  const TemporaryFile file(".log");
  const auto read = [&](const std::string& content) {
    std::ofstream(file.path(), std::ios::trunc | std::ios::binary) << content;
    return read_log(file.path());
  };
  EXPECT_EQ(read(kSnapshot).ops, expected_of_snapshot().ops);
  EXPECT_EQ(read(log_of("1,2,allocate,0x1,5,0\n")).ops.size(), 1U);
  EXPECT_EQ(read("Time,Action,Pointer,Size,Stream\n2,allocate,0x1,5,0\n").ops.size(), 1U);
  EXPECT_EQ(read(log_of("1,2,allocate,0x1,5,0\n1,2,al")).incomplete_lines, 1U);
  EXPECT_THAT(error_of([&] {
                read(
                    "[  6732][10:31:05:541938][info  ] ----- RMM LOG BEGIN [PTDS DISABLED] -----\n"
                    "[  6732][10:31:05:545342][error ] [A][Stream 0x1][Upstream 96B][FAILURE]\n");
              }),
              HasSubstr("but got RMM's debug log; record the allocations with "
                        "logging_resource_adaptor"));
  EXPECT_THAT(error_of([&] { read("MZ whatever"); }), HasSubstr("the file begins otherwise"));
  EXPECT_THAT(error_of([&] { read(""); }), HasSubstr("the file begins otherwise"));
  EXPECT_THROW((void)read_log("/nonexistent/file"), Error);
}

}  // namespace
}  // namespace gantry::replay
