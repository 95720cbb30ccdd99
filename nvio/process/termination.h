// What happens at SIGTERM: batch systems send it some seconds before they kill a job, and what the
// job wrote must be in the files by then, as it would be without a cache.
#pragma once

namespace nvio {

// From now on the first SIGTERM runs `flush` in a thread of its own, while the program goes on, and
// then ends the process as SIGTERM would have. Does nothing where the program has chosen to handle
// or ignore the signal; a choice that it makes later replaces ours. Called once.
void flush_at_termination(void (*flush)());

}  // namespace nvio
