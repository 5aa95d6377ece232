// How a thread of the GPU reads and writes words that other devices or the host see.
#pragma once

#include <cstdint>

#include "collectives/cuda/fold.cuh"
#include "collectives/protocol/signal.hpp"

namespace gantry::protocol {

class CudaWords {
 public:
  __device__ std::uint64_t acquire(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ void release(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }
  __device__ void post(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
  }

  // A packet travels as one 16-byte access.
  __device__ Packet read(const Packet* packet) {
    Packet value;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.low), "=r"(value.low_flag), "=r"(value.high), "=r"(value.high_flag)
                 : "l"(packet)
                 : "memory");
    return value;
  }
  __device__ void write(Packet* packet, const Packet& value) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(packet), "r"(value.low),
                 "r"(value.low_flag), "r"(value.high), "r"(value.high_flag)
                 : "memory");
  }

  // A line travels as the accesses of 8 neighbouring threads in one instruction, for which they
  // have to come together. One of them reads the flag; the barrier in read_line() keeps the others'
  // payload from being read before it.
  static constexpr int kLineWordsHeld = 2;
  __device__ int first_line_word() const {
    return static_cast<int>(threadIdx.x) % kLineThreads * kLineWordsHeld;
  }
  __device__ std::uint64_t read_line_flag(const Line* line) {
    std::uint64_t flag;
    asm volatile("ld.volatile.global.u64 %0, [%1];"
                 : "=l"(flag)
                 : "l"(line->words + kLineWords - 1)
                 : "memory");
    return flag;
  }
  __device__ void read_line(const Line* line, std::uint64_t (&words)[kLineWordsHeld]) {
    __syncwarp(line_lanes());
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "l"(line->words + first_line_word())
                 : "memory");
  }
  __device__ void write_line(Line* line, const std::uint64_t (&words)[kLineWordsHeld]) {
    __syncwarp(line_lanes());
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(line->words + first_line_word()),
                 "l"(words[0]), "l"(words[1])
                 : "memory");
  }
  __device__ bool any_of_line(bool flag) {
    return (__ballot_sync(0xffffffff, static_cast<int>(flag)) & line_lanes()) != 0;
  }
  __device__ bool any_of_warp(bool flag) {
    return __any_sync(0xffffffff, static_cast<int>(flag)) != 0;
  }

  // Words that only this rank's kernels use, one after the other.
  template <class Word>
  __device__ Word own(const Word* word) {
    return *static_cast<const volatile Word*>(word);
  }
  template <class Word>
  __device__ void set_own(Word* word, Word value) {
    *static_cast<volatile Word*>(word) = value;
  }
  __device__ std::uint32_t count_own(std::uint32_t* word) { return atomicAdd(word, 1u); }
  __device__ void fence() { __threadfence(); }

  __device__ void note_told() { told_ = true; }
  __device__ bool has_told() const { return told_; }
  template <class Word>
  __device__ void publish(Word* host_word, Word value) {
    *static_cast<volatile Word*>(host_word) = value;
  }
  __device__ void publish_last(std::uint32_t* host_word, std::uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(host_word), "r"(value) : "memory");
  }
  __device__ bool claim(std::uint32_t* host_word) {
    // Most find it taken, and need not exchange anything over the bus.
    if (*static_cast<const volatile std::uint32_t*>(host_word) != 0) return false;
    return atomicCAS_system(host_word, 0u, kFaultClaimed) == 0;
  }
  __device__ bool is_aborted(const DeviceWords* words) {
    return *static_cast<const volatile std::uint32_t*>(&words->abort) != 0;
  }
  __device__ void pause(std::uint32_t) {}

  template <class Acc>
  __device__ static Acc scaled(Acc value, double scale) {
    return cuda::scaled(value, scale);
  }

 protected:
  static constexpr int kLineThreads = kLineWords / kLineWordsHeld;

 private:
  __device__ static std::uint32_t line_lanes() {
    constexpr std::uint32_t kFirst = (1u << kLineThreads) - 1;
    return kFirst << (threadIdx.x & (32 - kLineThreads));
  }

  bool told_ = false;
};

}  // namespace gantry::protocol
