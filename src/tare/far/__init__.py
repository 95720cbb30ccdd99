"""Another machine, reached over ssh: a connection to it, and what is put on it for a while.

`connection` is a synchronous face of asyncssh; `folder` keeps a folder on the far machine that
goes, with every process that was started under its mark, when this side hangs up or falls silent;
`programs` puts this machine's programs there.
"""

from __future__ import annotations

from tare.far.connection import Connection, Far, Target
from tare.far.folder import Folder
from tare.far.programs import Programs

__all__ = ["Connection", "Far", "Folder", "Programs", "Target"]
