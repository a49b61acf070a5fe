# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What every test starts from."""

import signal

from hypothesis import settings

# Whatever a shell starts in the background ignores Ctrl-C, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes is the machine's, not the code's.
settings.register_profile("crosscheck", deadline=None)
settings.load_profile("crosscheck")
