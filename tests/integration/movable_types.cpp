// The public classes that need no test of their own after a move.
#include <type_traits>

#include <gantry/extend/forwarding_driver.hpp>
#include <gantry/extend/store.hpp>
#include <gantry/gantry.hpp>

namespace gantry {
namespace {

#define NOT_MOVABLE(T) \
  static_assert(!std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>)
// A move is a copy.
#define PLAIN_VALUE(T) static_assert(std::is_trivially_copyable_v<T>)
// What derives from it is tested.
#define BASE_OF_FACETS(T, count) \
  static_assert(std::is_abstract_v<T> && sizeof(T) == (count) * sizeof(void*))
#define BASE_WITHOUT_DATA(T) static_assert(std::is_abstract_v<T> && sizeof(T) == sizeof(void*))

NOT_MOVABLE(Store);
NOT_MOVABLE(StoreServer);
NOT_MOVABLE(StoreClient);
NOT_MOVABLE(ForwardingDriver);
NOT_MOVABLE(DeviceGuard);
NOT_MOVABLE(OptionalDeviceGuard);
NOT_MOVABLE(StreamGuard);
NOT_MOVABLE(MultiStreamGuard);
NOT_MOVABLE(GraphCapture);
NOT_MOVABLE(SyncDebugGuard);
NOT_MOVABLE(PeerOperands);
NOT_MOVABLE(GreenContext);
NOT_MOVABLE(OptionalStreamGuard);
NOT_MOVABLE(nvtx::Range);
NOT_MOVABLE(profiler::Scope);
NOT_MOVABLE(trace::Range);
NOT_MOVABLE(trace::Recording);
NOT_MOVABLE(detail::ObservedLaunch);
NOT_MOVABLE(MessageGroup);
NOT_MOVABLE(GradientBuckets);
NOT_MOVABLE(memory::HistoryAnnotation);
NOT_MOVABLE(memory::MemPoolGuard);
NOT_MOVABLE(detail::PeerUse);
NOT_MOVABLE(detail::NestedList);

PLAIN_VALUE(PeerView);
PLAIN_VALUE(Scalar);
PLAIN_VALUE(Dim);
PLAIN_VALUE(Dims);
PLAIN_VALUE(Axes);
PLAIN_VALUE(Operand);
PLAIN_VALUE(GeneratorRef);
PLAIN_VALUE(Stream);
PLAIN_VALUE(Block);
using ElementsOfAMatrix = TensorAccessor<float, 2>;
PLAIN_VALUE(ElementsOfAMatrix);
PLAIN_VALUE(detail::Float16Limits);
PLAIN_VALUE(detail::Float8Limits);

BASE_WITHOUT_DATA(DeviceCalls);
BASE_WITHOUT_DATA(MemoryCalls);
BASE_WITHOUT_DATA(PoolCalls);
BASE_WITHOUT_DATA(VirtualMemoryCalls);
BASE_WITHOUT_DATA(StreamCalls);
BASE_WITHOUT_DATA(EventCalls);
BASE_WITHOUT_DATA(PeerCalls);
BASE_WITHOUT_DATA(IpcCalls);
BASE_WITHOUT_DATA(CaptureCalls);
BASE_OF_FACETS(Driver, 9);
BASE_WITHOUT_DATA(memory::Allocator);

}  // namespace
}  // namespace gantry
