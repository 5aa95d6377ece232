// Calls of CUDA for a stand-in of CUPTI, which reports them as CUPTI does.
#pragma once

#include <cstdint>

enum class StandInCall : int { launch, driver_launch, copy, fill, peer_copy, other };

extern "C" {
/// The calling thread makes a call of CUDA that submits work, which begins 1 µs later and lasts
/// 1 µs. `other` submits nothing.
void cupti_stand_in_call(StandInCall call);
/// True while a kind of activity is enabled.
bool cupti_stand_in_records(std::uint32_t kind);
/// The number of functions of CUDA whose calls are reported.
int cupti_stand_in_functions();
}
