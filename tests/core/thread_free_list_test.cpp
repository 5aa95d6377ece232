#include "core/thread_free_list.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

// Pieces with an alignment that the C++ library has not given back yet.
std::atomic<int> live_pieces{0};

}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  void* const memory = std::aligned_alloc(step, (bytes + step - 1) / step * step);
  if (memory == nullptr) throw std::bad_alloc();
  ++live_pieces;
  return memory;
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  --live_pieces;
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}

namespace gantry {
namespace {

constexpr int kMostKept = kHasAddressSanitizer ? 0 : 16;

// A list of the test's own.
template <int kTest>
using List = ThreadFreeList<static_cast<std::size_t>(64 * kTest), 64>;

TEST(ThreadFreeListTest, GivesAlignedMemoryThatIsNotInUse) {
  std::vector<void*> pieces;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 40; ++i) {
      void* const piece = List<1>::allocate();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 64, 0U);
      std::memset(piece, i, 64);
      pieces.push_back(piece);
    }
    for (int i = 0; i < 40; ++i) {
      const auto* const bytes = static_cast<const unsigned char*>(pieces[static_cast<size_t>(i)]);
      for (int k = 0; k < 64; ++k) ASSERT_EQ(bytes[k], i);
      List<1>::deallocate(pieces[static_cast<size_t>(i)]);
    }
    pieces.clear();
  }
}

TEST(ThreadFreeListTest, KeepsFewPiecesUntilTheThreadEnds) {
  const int before = live_pieces;
  std::thread([&] {
    std::array<void*, 40> pieces;
    for (void*& piece : pieces) piece = List<2>::allocate();
    EXPECT_EQ(live_pieces, before + 40);
    for (void* const piece : pieces) List<2>::deallocate(piece);
    EXPECT_EQ(live_pieces, before + kMostKept);
    // They come back, without new ones.
    for (int i = 0; i < kMostKept; ++i) pieces[static_cast<size_t>(i)] = List<2>::allocate();
    EXPECT_EQ(live_pieces, before + kMostKept);
    for (int i = 0; i < kMostKept; ++i) List<2>::deallocate(pieces[static_cast<size_t>(i)]);
    EXPECT_EQ(live_pieces, before + kMostKept);
  }).join();
  EXPECT_EQ(live_pieces, before);
}

TEST(ThreadFreeListTest, TakesPiecesOfOtherThreads) {
  const int before = live_pieces;
  std::array<void*, 40> pieces;
  for (void*& piece : pieces) piece = List<3>::allocate();
  // One thread that only frees, and one that has a list of its own.
  std::thread([&] {
    for (int i = 0; i < 20; ++i) List<3>::deallocate(pieces[static_cast<size_t>(i)]);
    EXPECT_EQ(live_pieces, before + 20);
  }).join();
  std::thread([&] {
    void* const own = List<3>::allocate();
    for (int i = 20; i < 40; ++i) List<3>::deallocate(pieces[static_cast<size_t>(i)]);
    List<3>::deallocate(own);
    EXPECT_EQ(live_pieces, before + kMostKept);
  }).join();
  EXPECT_EQ(live_pieces, before);
}

// Destroyed after the list of its thread, which was made later.
struct LateUser {
  ~LateUser() {
    List<4>::deallocate(std::exchange(piece, nullptr));
    for (int i = 0; i < 3; ++i) List<4>::deallocate(List<4>::allocate());
  }
  void* piece = nullptr;
};

TEST(ThreadFreeListTest, MayBeUsedAtTheEndOfTheThread) {
  const int before = live_pieces;
  std::thread([] {
    static thread_local LateUser user;
    user.piece = List<4>::allocate();
    List<4>::deallocate(List<4>::allocate());
  }).join();
  EXPECT_EQ(live_pieces, before);
}

TEST(ThreadFreeListTest, SharedObjectsUseItsMemory) {
  struct alignas(64) Object {
    explicit Object(int number) : value(number) {}
    int value;
  };
  const void* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    const auto object = std::allocate_shared<Object>(ThreadFreeListAllocator<Object>(), i);
    EXPECT_EQ(object->value, i);
    if (i == 0) first = object.get();
    if (kMostKept > 0) {
      EXPECT_EQ(object.get(), first);
    }
  }
}

}  // namespace
}  // namespace gantry
