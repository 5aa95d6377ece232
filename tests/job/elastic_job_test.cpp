// Messages of an elastic job's processes in its store, also at the same time.
#include "job/elastic_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A store in which other processes write between a look at a key and the change of it.
class BusyStore final : public Store {
 public:
  // Runs the writes of others, one before each of the next changes.
  void interleave(std::vector<std::function<void()>> others) { others_ = std::move(others); }
  [[nodiscard]] bool is_done() const { return others_.empty(); }

  void set(std::string_view key, std::string_view value) override {
    values_[std::string(key)] = value;
  }
  std::string get(std::string_view key, std::chrono::milliseconds) override {
    return values_.at(std::string(key));
  }
  std::optional<std::string> try_get(std::string_view key) override {
    const auto found = values_.find(std::string(key));
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t add(std::string_view key, std::int64_t delta) override {
    const std::int64_t sum = std::stoll(try_get(key).value_or("0")) + delta;
    set(key, std::to_string(sum));
    return sum;
  }
  std::string compare_and_set(std::string_view key, std::string_view expected,
                              std::string_view desired) override {
    if (!others_.empty()) {
      const std::function<void()> other = std::move(others_.front());
      others_.erase(others_.begin());
      std::vector<std::function<void()>> rest = std::exchange(others_, {});
      other();
      others_ = std::move(rest);
    }
    if (try_get(key).value_or("") == expected) set(key, desired);
    return values_[std::string(key)];
  }
  bool erase(std::string_view key) override { return values_.erase(std::string(key)) == 1; }
  void wait(std::span<const std::string>, std::chrono::milliseconds) override {}

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::function<void()>> others_;
};

class ElasticJobTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"GANTRY_ELASTIC", "GANTRY_RESTART"}) unsetenv(name);
  }
  static ProcessIdentity identity(const std::string& source, int size,
                                  const std::string& rendezvous = "") {
    ProcessIdentity made;
    made.source = source;
    made.world_size = size;
    made.rendezvous = rendezvous;
    return made;
  }

  BusyStore store_;
};

TEST_F(ElasticJobTest, ListsKeepWhatProcessesWriteAtTheSameTime) {
  struct List {
    std::function<void(int)> add;
    std::function<std::vector<int>()> read;
  };
  const std::vector<List> lists{
      {[&](int id) {
         announce_arrival(store_, {id % 3, id, "version"});
       },
       [&] {
         std::vector<int> ids;
         for (const Arrival& one : arrivals(store_)) ids.push_back(one.id);
         return ids;
       }},
      {[&](int id) { set_joined(store_, id, true); }, [&] { return joined_ids(store_); }},
      {[&](int id) { note_started(store_, id); }, [&] { return started_ids(store_); }},
      {[&](int id) { note_departed(store_, id); }, [&] { return departed_ids(store_); }}};
  for (const List& list : lists) {
    EXPECT_THAT(list.read(), IsEmpty());
    store_.interleave({[&] { list.add(5); }, [&] { list.add(6); }, [&] { list.add(7); }});
    list.add(4);
    EXPECT_TRUE(store_.is_done());
    EXPECT_THAT(list.read(), UnorderedElementsAre(4, 5, 6, 7));
    list.add(8);
    EXPECT_THAT(list.read(), UnorderedElementsAre(4, 5, 6, 7, 8)) << "and no other list";
  }
}

TEST_F(ElasticJobTest, AProcessIsInAListOnceAndLeavesIt) {
  for (const int id : {4, 14, 4, 1, 14}) set_joined(store_, id, true);
  EXPECT_THAT(joined_ids(store_), UnorderedElementsAre(1, 4, 14));
  store_.interleave({[&] { set_joined(store_, 9, true); }, [&] { set_joined(store_, 1, false); }});
  set_joined(store_, 4, false);
  EXPECT_THAT(joined_ids(store_), UnorderedElementsAre(9, 14));
  set_joined(store_, 4, false);
  EXPECT_THAT(joined_ids(store_), UnorderedElementsAre(9, 14));
  EXPECT_THAT(started_ids(store_), IsEmpty());
}

TEST_F(ElasticJobTest, ArrivalsAreInTheirOrderWithAllThatTheyTell) {
  announce_arrival(store_, {-1, 7, "2.1"});
  announce_arrival(store_, {3, 5, "2.0"});
  const std::vector<Arrival> all = arrivals(store_);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].rank, -1);
  EXPECT_EQ(all[0].id, 7);
  EXPECT_EQ(all[0].version, "2.1");
  EXPECT_EQ(all[1].rank, 3);
  EXPECT_EQ(all[1].id, 5);
  EXPECT_EQ(all[1].version, "2.0");
}

TEST_F(ElasticJobTest, TheNewestReplacementHoldsItsRank) {
  EXPECT_EQ(holder_of(store_, 1), std::nullopt);
  set_holder(store_, 1, 8);
  set_holder(store_, 11, 9);
  EXPECT_EQ(holder_of(store_, 1), 8);
  set_holder(store_, 1, 10);
  EXPECT_EQ(holder_of(store_, 1), 10);
  EXPECT_EQ(holder_of(store_, 11), 9);
}

TEST_F(ElasticJobTest, TermsAreOfGlaunchAndFitTheJob) {
  EXPECT_EQ(elastic_terms(identity("glaunch", 4)), std::nullopt);
  setenv("GANTRY_ELASTIC", "2:4", 1);
  EXPECT_EQ(elastic_terms(identity("torchrun", 4)), std::nullopt);
  std::optional<ElasticTerms> terms = elastic_terms(identity("glaunch", 4));
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->fewest, 2);
  EXPECT_EQ(terms->most, 4);
  EXPECT_EQ(terms->replacement, 0);
  EXPECT_EQ(terms->id_of(3), 3);
  setenv("GANTRY_RESTART", "2", 1);
  terms = elastic_terms(identity("glaunch", 4));
  EXPECT_EQ(terms->replacement, 2);
  EXPECT_EQ(terms->id_of(3), 5) << "the second number behind the job's";
  for (const char* text : {"0:4", "5:4", "2:3", "2:5", "2", "2:", ":4", "x:4", "2:4:4"}) {
    setenv("GANTRY_ELASTIC", text, 1);
    EXPECT_ERROR(elastic_terms(identity("glaunch", 4)), InvalidArgument, "GANTRY_ELASTIC");
  }
}

TEST_F(ElasticJobTest, AJobOfTheUserNeedsRanksThatMeetAtAnAddress) {
  const std::string place = "tcp:10.0.0.1:29500";
  EXPECT_FALSE(is_elastic_by_user(identity("torchrun", 4, place)));
  setenv("GANTRY_ELASTIC", "2:4", 1);
  EXPECT_TRUE(is_elastic_by_user(identity("torchrun", 4, place)));
  for (const char* source : {"glaunch", "connect"}) {
    EXPECT_FALSE(is_elastic_by_user(identity(source, 4, place))) << source;
  }
  EXPECT_ERROR(is_elastic_by_user(identity("slurm", 4)), NotSupported, "set GANTRY_RDZV");
  EXPECT_ERROR(is_elastic_by_user(identity("openmpi", 4, place)), NotSupported,
               "whose mpirun ends a job that loses a rank");
  setenv("GANTRY_ELASTIC", "1:1", 1);
  EXPECT_FALSE(is_elastic_by_user(identity("none", 1))) << "it meets nobody";
  setenv("GANTRY_ELASTIC", "3:2", 1);
  EXPECT_ERROR(is_elastic_by_user(identity("torchrun", 2, place)), InvalidArgument,
               "GANTRY_ELASTIC");
}

}  // namespace
}  // namespace gantry
