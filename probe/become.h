// How a program is started in a process that has led to it.
#pragma once

#include "words.h"

namespace tare::probe {

/// Becomes the command, with the variables that were handed over under other names.
///
/// What leads to a program (setpriv, nsenter, chroot) has more rights than it, and would obey its
/// variables as it does: LD_PRELOAD, PATH. So these travel as TARE_GIVEN_NAME, and get their names
/// here, where the rights are the program's own. A name that is not on the PATH that it then has is
/// looked for on the one before.
///
/// Throws a sentence where it cannot be started.
[[noreturn]] void become(const Words& command);

}  // namespace tare::probe
