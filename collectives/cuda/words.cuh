// Loads and stores of words that other devices or the host see, by a thread of the GPU.
#pragma once

#include <cstdint>

#include "collectives/cuda/reduce.cuh"
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
  __device__ void post(std::byte** word, std::byte* address) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(address) : "memory");
  }

  // A packet travels as one 16-byte access.
  __device__ LlPacket read_ll(const LlPacket* packet) {
    LlPacket value;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.low), "=r"(value.low_flag), "=r"(value.high), "=r"(value.high_flag)
                 : "l"(packet)
                 : "memory");
    return value;
  }
  __device__ void write_ll(LlPacket* packet, const LlPacket& value) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(packet), "r"(value.low),
                 "r"(value.low_flag), "r"(value.high), "r"(value.high_flag)
                 : "memory");
  }

  // An LL128 line is accessed by 8 neighbouring threads in one instruction, for which they must
  // converge. One of them reads the flag. The barrier in read_ll128() orders the loads of the other
  // threads after it.
  static constexpr int kLl128WordsHeld = 2;
  __device__ int first_ll128_word() const {
    return static_cast<int>(threadIdx.x) % kLl128Threads * kLl128WordsHeld;
  }
  __device__ std::uint64_t read_ll128_flag(const Ll128Line* line) {
    std::uint64_t flag;
    asm volatile("ld.volatile.global.u64 %0, [%1];"
                 : "=l"(flag)
                 : "l"(line->words + kLl128Words - 1)
                 : "memory");
    return flag;
  }
  __device__ void read_ll128(const Ll128Line* line, std::uint64_t (&words)[kLl128WordsHeld]) {
    __syncwarp(ll128_lanes());
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0]), "=l"(words[1])
                 : "l"(line->words + first_ll128_word())
                 : "memory");
  }
  __device__ void write_ll128(Ll128Line* line, const std::uint64_t (&words)[kLl128WordsHeld]) {
    __syncwarp(ll128_lanes());
    asm volatile(
        "st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(line->words + first_ll128_word()),
        "l"(words[0]), "l"(words[1])
        : "memory");
  }
  __device__ bool any_of_ll128_line(bool flag) {
    return (__ballot_sync(0xffffffff, static_cast<int>(flag)) & ll128_lanes()) != 0;
  }
  __device__ bool any_of_warp(bool flag) {
    return __any_sync(0xffffffff, static_cast<int>(flag)) != 0;
  }

  // Words that only kernels of this rank use, one kernel after the other.
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

  __device__ void note_reported() { reported_ = true; }
  __device__ bool has_reported() const { return reported_; }
  template <class Word>
  __device__ void publish(Word* host_word, Word value) {
    *static_cast<volatile Word*>(host_word) = value;
  }
  __device__ void publish_last(std::uint32_t* host_word, std::uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(host_word), "r"(value) : "memory");
  }
  __device__ bool claim(std::uint32_t* host_word) {
    // Most threads find the word claimed, and need no exchange over the bus.
    if (*static_cast<const volatile std::uint32_t*>(host_word) != 0) return false;
    return atomicCAS_system(host_word, 0u, kFaultClaimed) == 0;
  }
  __device__ bool is_aborted(const DeviceWords* words) {
    return *static_cast<const volatile std::uint32_t*>(&words->abort) != 0;
  }
  __device__ bool takes_turn(std::uint32_t checks) {
    return (checks + blockIdx.x) % gridDim.x == 0;
  }
  __device__ void pause(std::uint32_t) {}

  template <class Acc>
  __device__ static Acc scaled(Acc value, double scale) {
    return cuda::scaled(value, scale);
  }

 protected:
  static constexpr int kLl128Threads = kLl128Words / kLl128WordsHeld;

 private:
  __device__ static std::uint32_t ll128_lanes() {
    constexpr std::uint32_t kFirst = (1u << kLl128Threads) - 1;
    return kFirst << (threadIdx.x & (32 - kLl128Threads));
  }

  bool reported_ = false;
};

}  // namespace gantry::protocol
