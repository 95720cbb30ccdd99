"""What holds for every test."""

import signal

from hypothesis import settings

# No test asserts a time: the first example may have to import half of the lab, on a busy machine.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, by a shell that has no jobs: what tests start would be deaf to the
    # Ctrl-C that they send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
