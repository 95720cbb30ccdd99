"""What holds for every test."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, by a shell that has no jobs: what tests start would be deaf to the
    # Ctrl-C that they send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
