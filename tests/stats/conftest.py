"""Property tests try the same examples every time, and are not timed: the machine may be busy."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
