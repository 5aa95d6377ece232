// Exceptions after a move.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/moved_from.hpp"

namespace gantry::testing {

// Errors: what() is the standard library's matter, the rest is empty.
template <class E>
struct MovableError {
  static constexpr std::string_view kRefusal = "";
  static E make() { return E("text", "cuda:1"); }
  static bool works(E& o) { return o.device() == "cuda:1" && !o.where().empty(); }
  static std::vector<MovedFromCall<E>> calls() {
    return {ANSWERS(what, o.what() != nullptr), ANSWERS(device, o.device().empty()),
            ANSWERS(where, o.where().empty())};
  }
};
template <>
struct Movable<Error> : MovableError<Error> {};
template <>
struct Movable<InvalidArgument> : MovableError<InvalidArgument> {};
template <>
struct Movable<jit::CompileError> : MovableError<jit::CompileError> {
  static jit::CompileError make() { return jit::CompileError("text", "log", "cuda:1"); }
  static std::vector<MovedFromCall<jit::CompileError>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(log, o.log().empty()));
    return result;
  }
};
template <>
struct Movable<CudaError> : MovableError<CudaError> {
  static CudaError make() { return CudaError("text", 700, "cudaErrorIllegalAddress", "cuda:1"); }
  static std::vector<MovedFromCall<CudaError>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(code, o.code() == 700));
    result.push_back(ANSWERS(name, o.name().empty()));
    return result;
  }
};
template <>
struct Movable<RaceError> : MovableError<RaceError> {};
template <>
struct Movable<OutOfMemoryError> : MovableError<OutOfMemoryError> {
  static OutOfMemoryError make() {
    return OutOfMemoryError("text", OomReport{.top_call_sites = {{"f", 1}}}, "cuda:1");
  }
  static std::vector<MovedFromCall<OutOfMemoryError>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(breakdown, o.breakdown().top_call_sites.empty()));
    return result;
  }
};
template <>
struct Movable<PeerLostError> : MovableError<PeerLostError> {
  static PeerLostError make() { return PeerLostError("text", 3, "cuda:1"); }
  static std::vector<MovedFromCall<PeerLostError>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(rank, o.rank() == 3));
    return result;
  }
};
template <>
struct Movable<TimeoutError> : MovableError<TimeoutError> {
  static TimeoutError make() { return TimeoutError("text", std::vector<int>{3}, "cuda:1"); }
  static std::vector<MovedFromCall<TimeoutError>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(ranks, o.ranks().empty()));
    return result;
  }
};
template <>
struct Movable<CollectiveMismatch> : MovableError<CollectiveMismatch> {
  static CollectiveMismatch make() { return CollectiveMismatch("text", {0, 1}, {"a", "b"}); }
  static bool works(CollectiveMismatch& o) { return o.ranks().size() == 2 && o.calls()[1] == "b"; }
  static std::vector<MovedFromCall<CollectiveMismatch>> calls() {
    auto result = MovableError::calls();
    result.push_back(ANSWERS(ranks, o.ranks().empty()));
    result.push_back(ANSWERS(calls, o.calls().empty()));
    return result;
  }
};

}  // namespace gantry::testing
