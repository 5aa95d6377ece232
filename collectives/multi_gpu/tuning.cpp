#include "collectives/multi_gpu/tuning.hpp"

namespace gantry {

CommTuning& comm_tuning() {
  static CommTuning tuning;
  return tuning;
}

}  // namespace gantry
