// Ranks' clocks begin at each one's own MPI_Init; collective calls tell how far they are apart.
#pragma once

#include "log.h"

namespace nvio {

// Moves the times of each rank so that in the median it leaves collective calls as the first rank
// does: all leave them together. Without such calls nothing is moved.
void align_clocks(DarshanLog& log);

}  // namespace nvio
