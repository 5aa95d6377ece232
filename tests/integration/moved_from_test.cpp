// Every movable public class after a move: its members throw or give a harmless answer, it can be
// assigned and destroyed. tests/checks/movable_types.py compares this list with the headers.
#include "tests/integration/moved_from.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "tests/integration/moved_from_errors.hpp"
#include "tests/integration/moved_from_files.hpp"
#include "tests/integration/moved_from_indices.hpp"
#include "tests/integration/moved_from_kernels.hpp"
#include "tests/integration/moved_from_streams.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

Device device() { return Device::cuda(0); }
Stream stream() { return Stream::current(device()); }

}  // namespace

template <>
struct Movable<Storage> {
  static constexpr std::string_view kRefusal = "";
  static Storage make() { return Storage::allocate(64, device()); }
  static bool works(Storage& o) { return o.defined() && o.bytes() == 64 && o.data() != nullptr; }
  static std::vector<MovedFromCall<Storage>> calls() {
    return {ANSWERS(defined, !o.defined()),
            ANSWERS(data, o.data() == nullptr),
            ANSWERS(bytes, o.bytes() == 0),
            ANSWERS(device, o.device().is_cpu()),
            ANSWERS(is_pinned, !o.is_pinned()),
            ANSWERS(is_peer_accessible, !o.is_peer_accessible()),
            ANSWERS(block, o.block() == nullptr),
            ANSWERS(record_stream, (o.record_stream(stream()), true)),
            ANSWERS(record_use, (o.record_use(stream()), true)),
            ANSWERS(use_count, o.use_count() == 0)};
  }
};

template <>
struct Movable<Generator> {
  static constexpr std::string_view kRefusal = "expected a valid Generator, but got a moved-from";
  static Generator make() { return Generator(device(), 5); }
  static bool works(Generator& o) { return o.initial_seed() == 5 && o.device() == device(); }
  static std::vector<MovedFromCall<Generator>> calls() {
    return {REFUSES(device, o.device()),
            REFUSES(manual_seed, o.manual_seed(1)),
            REFUSES(seed, o.seed()),
            REFUSES(initial_seed, o.initial_seed()),
            REFUSES(offset, o.offset()),
            REFUSES(set_offset, o.set_offset(1)),
            REFUSES(advance, o.advance()),
            REFUSES(take, o.take()),
            REFUSES(reserve, o.reserve().seed),
            REFUSES(get_state, o.get_state()),
            REFUSES(set_state, o.set_state(zeros({16}, u8))),
            REFUSES(identity, o.identity()),
            REFUSES(clone, o.clone()),
            REFUSES(fork, o.fork(1)),
            REFUSES(, rand({2}, device(), o)),
            REFUSES(, randn({2}, device(), o)),
            REFUSES(, randint(5, {2}, device(), o)),
            REFUSES(, randperm(5, device(), o)),
            REFUSES(, bernoulli(ones({2}, device()), o)),
            REFUSES(, ones({2}, device()).uniform_(0, 1, o))};
  }
};

template <>
struct Movable<Event> {
  static constexpr std::string_view kRefusal = "";
  static Event make() {
    Event event({.timing = true});
    event.record(stream());
    return event;
  }
  static bool works(Event& o) {
    o.synchronize();
    return o.is_created() && o.query() && o.device() == device();
  }
  // As newly made with its options.
  static std::vector<MovedFromCall<Event>> calls() {
    return {ANSWERS(is_created, !o.is_created()),
            ANSWERS(native_handle, o.native_handle() == nullptr),
            ANSWERS(options, o.options().timing),
            ANSWERS(query, o.query()),
            ANSWERS(wait, (o.wait(stream()), o.wait(), true)),
            ANSWERS(synchronize, (o.synchronize(), true)),
            REFUSES(device, o.device()),
            REFUSES(elapsed_ms, o.elapsed_ms(make())),
            REFUSES(ipc_handle, o.ipc_handle()),
            ANSWERS(record, (o.record(stream()), o.is_created()))};
  }
};

template <>
struct Movable<memory::OomHandler> {
  static constexpr std::string_view kRefusal = "";
  static memory::OomHandler make() {
    return memory::add_oom_handler([](Device, std::size_t) { return false; });
  }
  static bool works(memory::OomHandler& o) { return (o.remove(), true); }
  static std::vector<MovedFromCall<memory::OomHandler>> calls() {
    return {ANSWERS(remove, (o.remove(), true))};
  }
};

template <>
struct Movable<machine::CpuSet> {
  static constexpr std::string_view kRefusal = "";
  static machine::CpuSet make() { return {1, 3}; }
  static bool works(machine::CpuSet& o) { return o.str() == "1,3" && o.contains(3); }
  // The empty set.
  static std::vector<MovedFromCall<machine::CpuSet>> calls() {
    return {ANSWERS(empty, o.empty()),
            ANSWERS(size, o.size() == 0),
            ANSWERS(str, o.str().empty()),
            ANSWERS(contains, !o.contains(1)),
            ANSWERS(is_subset_of, o.is_subset_of(make())),
            ANSWERS(intersects, !o.intersects(make())),
            ANSWERS(cpus, o.cpus().empty())};
  }
};

template <>
struct Movable<Graph> {
  static constexpr std::string_view kRefusal = "expected a valid Graph, but got a moved-from";
  static Graph make() {
    Graph graph;
    {
      const GraphCapture capture(graph);
      const Tensor captured = zeros({2}, device());
    }
    return graph;
  }
  static bool works(Graph& o) {
    o.replay();
    return o.is_captured() && o.device() == device();
  }
  static std::vector<MovedFromCall<Graph>> calls() {
    return {REFUSES(capture_begin, o.capture_begin()),
            REFUSES(capture_end, o.capture_end()),
            REFUSES(replay, o.replay()),
            REFUSES(reset, o.reset()),
            REFUSES(update, o.update(Graph())),
            REFUSES(, Graph().update(o)),
            REFUSES(debug_dump, o.debug_dump("graph.dot")),
            REFUSES(is_captured, o.is_captured()),
            REFUSES(pool, o.pool()),
            REFUSES(device, o.device()),
            REFUSES(devices, o.devices()),
            REFUSES(, GraphCapture(o))};
  }
};

template <>
struct Movable<Graphed> {
  static constexpr std::string_view kRefusal = "expected a valid Graphed, but got a moved-from";
  static Graphed make() {
    return make_graphed([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0] + 1}; },
                        {input()});
  }
  static Tensor input() { return ones({2}, device()); }
  static bool works(Graphed& o) { return o({input()})[0].to_vector<float>()[0] == 2; }
  static std::vector<MovedFromCall<Graphed>> calls() {
    return {REFUSES(, o({input()})), REFUSES(graph, o.graph())};
  }
};

template <>
struct Movable<memory::MemPool> {
  static constexpr std::string_view kRefusal = "expected a valid MemPool, but got a moved-from";
  static memory::MemPool make() { return memory::MemPool(device()); }
  static bool works(memory::MemPool& o) {
    return o.allocate(stream(), 512).data() != nullptr && o.device() == device();
  }
  static std::vector<MovedFromCall<memory::MemPool>> calls() {
    return {REFUSES(allocate, o.allocate(stream(), 512)),
            REFUSES(id, o.id()),
            REFUSES(device, o.device()),
            REFUSES(use_count, o.use_count()),
            REFUSES(release_physical, o.release_physical()),
            REFUSES(restore_physical, o.restore_physical()),
            REFUSES(has_physical, o.has_physical()),
            REFUSES(snapshot, o.snapshot()),
            REFUSES(, memory::MemPoolGuard(o))};
  }
};

template <>
struct Movable<memory::Buffer> {
  static constexpr std::string_view kRefusal = "";
  static memory::Buffer make() { return memory::allocate(stream(), 512); }
  static bool works(memory::Buffer& o) { return o.data() != nullptr && o.bytes() == 512; }
  static std::vector<MovedFromCall<memory::Buffer>> calls() {
    return {ANSWERS(data, o.data() == nullptr),
            ANSWERS(bytes, o.bytes() == 0),
            ANSWERS(device, o.device().is_cpu()),
            ANSWERS(block, o.block().allocator == nullptr),
            ANSWERS(reset, (o.reset(), true)),
            ANSWERS(release, o.release().data == nullptr),
            ANSWERS(owner, o.owner() == nullptr),
            ANSWERS(bool, !static_cast<bool>(o)),
            ANSWERS(as, o.template as<int>().empty()),
            ANSWERS(copy_from, (o.copy_from(std::vector<int>()), true)),
            ANSWERS(copy_to, (o.copy_to(std::span<int>()), true))};
  }
};

template <>
struct Movable<UniqueFd> {
  static constexpr std::string_view kRefusal = "";
  static UniqueFd make() { return UniqueFd(::dup(0)); }
  static bool works(UniqueFd& o) { return o.get() >= 0; }
  static std::vector<MovedFromCall<UniqueFd>> calls() {
    return {ANSWERS(get, o.get() == -1), ANSWERS(bool, !static_cast<bool>(o)),
            ANSWERS(release, o.release() == -1), ANSWERS(reset, (o.reset(), true))};
  }
};

template <>
struct Movable<memory::ImportedBlock> {
  static constexpr std::string_view kRefusal = "";
  static memory::ImportedBlock make() {
    static memory::Buffer* const exported = new memory::Buffer(memory::allocate(stream(), 512));
    return memory::import_ipc(memory::export_ipc(exported->block()), device());
  }
  static bool works(memory::ImportedBlock& o) { return o.data() != nullptr && o.bytes() >= 512; }
  static std::vector<MovedFromCall<memory::ImportedBlock>> calls() {
    return {ANSWERS(data, o.data() == nullptr), ANSWERS(bytes, o.bytes() == 0),
            ANSWERS(device, o.device() == device()),
            ANSWERS(record_stream, (o.record_stream(stream()), true))};
  }
};

template <>
struct Movable<memory::PluggableAllocator> {
  static constexpr std::string_view kRefusal = "expected a valid PluggableAllocator, but got";
  static memory::PluggableAllocator make() {
    return memory::load_allocator(GANTRY_TEST_PLUGGABLE_LIBRARY, "pluggable_alloc",
                                  "pluggable_free");
  }
  static bool works(memory::PluggableAllocator& o) {
    memory::Block block = o.allocate(stream(), 512);
    const bool is_made = block.data != nullptr && o.live_blocks() == 1;
    o.deallocate(block);
    return is_made && o.live_bytes() == 0;
  }
  static std::vector<MovedFromCall<memory::PluggableAllocator>> calls() {
    return {REFUSES(allocate, o.allocate(stream(), 512)),
            ANSWERS(deallocate, (o.deallocate(*std::make_unique<memory::Block>()), true)),
            REFUSES(record_stream, o.record_stream(memory::Block(), stream())),
            REFUSES(record_use, o.record_use(memory::Block(), stream())),
            REFUSES(empty_cache, o.empty_cache(device())),
            ANSWERS(is_peer_accessible, !o.is_peer_accessible()),
            REFUSES(name, o.name()),
            REFUSES(live_blocks, o.live_blocks()),
            REFUSES(live_bytes, o.live_bytes())};
  }
};

template <>
struct Movable<memory::Frames> {
  static constexpr std::string_view kRefusal = "";
  static memory::Frames make() { return std::vector<memory::Frame>{{"a.cpp", 1, "f"}}; }
  static bool works(memory::Frames& o) { return o.size() == 1 && o[0].line == 1; }
  static std::vector<MovedFromCall<memory::Frames>> calls() {
    return {ANSWERS(size, o.size() == 0), ANSWERS(empty, o.empty()),
            ANSWERS(begin, o.begin() == o.end()), ANSWERS(end, o.begin() == o.end()),
            ANSWERS(call_site, o.call_site() == nullptr),
            // An empty list has no first frame, as a vector.
            ANSWERS(front, o.empty()), ANSWERS(identity, o.identity() == nullptr)};
  }
};

template <>
struct Movable<comm::StreamList> {
  static constexpr std::string_view kRefusal = "";
  static comm::StreamList make() { return {stream()}; }
  static bool works(comm::StreamList& o) { return o.size() == 1 && o[0] == stream(); }
  static std::vector<MovedFromCall<comm::StreamList>> calls() {
    return {ANSWERS(size, o.size() == 0)};
  }
};

template <>
struct Movable<Work> {
  static constexpr std::string_view kRefusal = "";
  static Work make() {
    static const auto* const group = new Communicator(Communicator::local({device()})[0]);
    return group->all_reduce(ones({4}, device()));
  }
  static bool works(Work& o) {
    o.synchronize();
    return o.defined() && o.query();
  }
  static std::vector<MovedFromCall<Work>> calls() {
    return {ANSWERS(defined, !o.defined()), ANSWERS(wait, (o.wait(), true)),
            ANSWERS(query, o.query()), ANSWERS(synchronize, (o.synchronize(), true)),
            ANSWERS(wait_for, o.wait_for(std::chrono::milliseconds(0)))};
  }
};

template <>
struct Movable<Window> {
  static constexpr std::string_view kRefusal = "an undefined one";
  static Window make() { return Communicator::local({device()})[0].window(ones({4}, device())); }
  static bool works(Window& o) { return o.defined() && o.peer(0).sum().item<int>() == 4; }
  static std::vector<MovedFromCall<Window>> calls() {
    return {ANSWERS(defined, !o.defined()),
            REFUSES(rank, o.rank()),
            REFUSES(size, o.size()),
            REFUSES(peer, o.peer(0)),
            REFUSES(peer_pointers, o.peer_pointers()),
            REFUSES(view, o.view()),
            REFUSES(signal_pad, o.signal_pad()),
            REFUSES(signal_pad, o.signal_pad(0)),
            REFUSES(barrier, o.barrier()),
            REFUSES(put_signal, o.put_signal(0)),
            REFUSES(wait_signal, o.wait_signal(0))};
  }
};

template <>
struct Movable<Communicator> {
  static constexpr std::string_view kRefusal = "an undefined one";
  static Communicator make() { return Communicator::local({device()})[0]; }
  static bool works(Communicator& o) { return o.defined() && o.size() == 1 && o.rank() == 0; }
  static Tensor t() { return ones({4}, device()); }
  static std::vector<MovedFromCall<Communicator>> calls() {
    return {REFUSES(rank, o.rank()),
            REFUSES(size, o.size()),
            REFUSES(local_rank, o.local_rank()),
            REFUSES(local_size, o.local_size()),
            REFUSES(device, o.device()),
            REFUSES(launched_by, o.launched_by()),
            REFUSES(transport, o.transport()),
            REFUSES(device_map, o.device_map()),
            REFUSES(name, o.name()),
            REFUSES(rank_in, o.rank_in(o, 0)),
            REFUSES(timeout, o.timeout()),
            REFUSES(set_timeout, o.set_timeout(std::chrono::seconds(1))),
            REFUSES(all_reduce, o.all_reduce(t())),
            REFUSES(all_reduce_coalesced, o.all_reduce_coalesced({})),
            REFUSES(reduce, o.reduce(t())),
            REFUSES(broadcast, o.broadcast(t())),
            REFUSES(all_gather, o.all_gather(t(), t())),
            REFUSES(all_gather, o.all_gather(t(), t(), {4})),
            REFUSES(reduce_scatter, o.reduce_scatter(t(), t())),
            REFUSES(gather, o.gather(t(), t())),
            REFUSES(scatter, o.scatter(t(), t())),
            REFUSES(all_to_all, o.all_to_all(t(), t())),
            REFUSES(all_to_all, o.all_to_all(t(), t(), {4}, {4})),
            REFUSES(send, o.send(t(), 0)),
            REFUSES(recv, o.recv(t(), 0)),
            REFUSES(send_recv, o.send_recv(t(), 0, t(), 0)),
            REFUSES(group, (void)o.group()),
            REFUSES(barrier, o.barrier()),
            REFUSES(register_memory, o.register_memory(t())),
            REFUSES(deregister_memory, o.deregister_memory(t())),
            REFUSES(window, o.window(t())),
            REFUSES(host_barrier, o.host_barrier()),
            REFUSES(all_gather_bytes, o.all_gather_bytes("a")),
            ANSWERS(failure, o.failure() == nullptr),
            REFUSES(suspend, o.suspend()),
            REFUSES(resume, o.resume()),
            REFUSES(is_suspended, o.is_suspended()),
            REFUSES(split, o.split(0)),
            REFUSES(split, o.split({0})),
            REFUSES(shrink, o.shrink({})),
            REFUSES(grow, o.grow(2)),
            ANSWERS(defined, !o.defined()),
            ANSWERS(abort, (o.abort(), true))};
  }
};

namespace {

template <class T>
class MovedFromTest : public ::testing::Test {
 protected:
  void SetUp() override { GANTRY_REQUIRE_DEVICES(1); }

  // Calls every member. An error is as good as an answer.
  static void expect_harmless(T& object) {
    for (const MovedFromCall<T>& call : Movable<T>::calls()) {
      try {
        call.call(object);
      } catch (const InvalidArgument&) {
      }
    }
  }

  static void expect_moved_from(T& object) {
    for (const MovedFromCall<T>& call : Movable<T>::calls()) {
      SCOPED_TRACE(call.member);
      if (!call.throws) {
        call.call(object);
        continue;
      }
      try {
        call.call(object);
        ADD_FAILURE() << "no error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(std::string(Movable<T>::kRefusal)));
      }
    }
  }
};

using MovableTypes =
    ::testing::Types<Tensor, Storage, Generator, Event, machine::CpuSet, Graph, Graphed,
                     OwnedStream, memory::MemPool, memory::Buffer, UniqueFd, memory::ImportedBlock,
                     memory::PluggableAllocator, memory::OomHandler, memory::Frames,
                     comm::StreamList, Work, Communicator, Window, Error, InvalidArgument,
                     CudaError, OutOfMemoryError, PeerLostError, TimeoutError, CollectiveMismatch,
                     RaceError, jit::Elementwise, jit::CompileError, TensorUses, Index, IndexPlan,
                     SafetensorsReader>;
TYPED_TEST_SUITE(MovedFromTest, MovableTypes);

TYPED_TEST(MovedFromTest, MembersThrowOrAnswerHarmlessly) {
  TypeParam source = Movable<TypeParam>::make();
  TypeParam moved = std::move(source);
  this->expect_moved_from(source);
  EXPECT_TRUE(Movable<TypeParam>::works(moved));
}

TYPED_TEST(MovedFromTest, SourcesOfAssignmentsToo) {
  TypeParam source = Movable<TypeParam>::make();
  TypeParam target = Movable<TypeParam>::make();
  target = std::move(source);
  this->expect_moved_from(source);
  EXPECT_TRUE(Movable<TypeParam>::works(target));
}

TYPED_TEST(MovedFromTest, AcceptsAFreshValue) {
  TypeParam source = Movable<TypeParam>::make();
  const TypeParam moved = std::move(source);
  source = Movable<TypeParam>::make();
  EXPECT_TRUE(Movable<TypeParam>::works(source));
}

TYPED_TEST(MovedFromTest, MovesOnAsMovedFrom) {
  TypeParam source = Movable<TypeParam>::make();
  const TypeParam moved = std::move(source);
  TypeParam again = std::move(source);
  this->expect_moved_from(again);
  TypeParam assigned = Movable<TypeParam>::make();
  TypeParam empty = Movable<TypeParam>::make();
  const TypeParam taken = std::move(empty);
  assigned = std::move(empty);
  this->expect_moved_from(assigned);
}

TYPED_TEST(MovedFromTest, SurvivesAssignmentToItself) {
  TypeParam object = Movable<TypeParam>::make();
  TypeParam& alias = object;
  object = std::move(alias);
  // The standard library's vector is empty then.
  const bool is_vector = std::is_same_v<TypeParam, comm::StreamList> ||
                         std::is_same_v<TypeParam, machine::CpuSet> ||
                         std::is_same_v<TypeParam, IndexPlan>;
  if (is_vector) {
    this->expect_harmless(object);
  } else {
    EXPECT_TRUE(Movable<TypeParam>::works(object));
  }
  object = Movable<TypeParam>::make();
  EXPECT_TRUE(Movable<TypeParam>::works(object));
}

}  // namespace
}  // namespace gantry::testing
