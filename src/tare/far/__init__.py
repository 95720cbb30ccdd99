"""Another machine, reached over ssh: a connection to it, and what is put on it for a while.

`connection` is a synchronous face of asyncssh; `folder` keeps a folder on the far machine that
goes, with every process that was started under its mark, when this side hangs up or falls silent;
`programs` puts this machine's programs there; `host` is the whole as a host.
"""

from __future__ import annotations

from tare.far.connection import Connection, Far
from tare.far.folder import Folder
from tare.far.host import FarHost

__all__ = ["Connection", "Far", "FarHost", "Folder"]
