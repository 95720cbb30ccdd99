"""What a user may: root may go anywhere, so it is asked with the user's own rights."""

from __future__ import annotations

from tare import process
from tare.command import Command
from tare.tree import User

_TIMEOUT_S = 30.0
_NO = 1


def allowed(user: User, *condition: str) -> bool:
    """Tell whether a condition of test(1) holds for a user.

    Raises:
        ProcessError: it cannot be asked, such as for want of a capability.
    """
    try:
        process.run(Command((*user.takes_on(), "test", *condition)), _TIMEOUT_S)
    except process.ProcessError as error:
        if error.code != _NO:
            raise
        return False
    return True
