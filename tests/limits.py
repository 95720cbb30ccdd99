"""What a process may not do, for a while."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_file_grows() -> Iterator[None]:
    """As on a full disk, where it is not the test's own."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, was[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, was)
