# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every error of the cross-check.

    CrossCheckError
    ├── SettingsError       a value of the configuration, also a ValueError
    ├── DirectoryError      the exchange directory cannot be used
    ├── PublishError        an artefact could not be saved
    ├── DamagedError        an artefact is there and is not what was written
    │   └── UnreadableError the file system did not give it, and may do so later
    ├── SpaceError          the disk is too full for what is to be saved
    ├── EncodingError       a value that an artefact cannot represent
    ├── MismatchError       an artefact answers another question than the one asked
    ├── AgreementError      the two runs are configured to compute different things
    ├── SessionError        this run may not take part, or no longer
    ├── ResumeError         the two runs cannot go on from where they were started
    ├── PeerFailedError     the other run has ended, and what is waited for will not come
    ├── PeerSilentError     the other run shows no sign of life
    └── WaitTimeoutError    the other run lives and made no progress in time, also a TimeoutError

Each takes one message, so that it survives pickling and crosses Ray. A message says what failed, where, what was
expected and found, and what to type next.
"""


class CrossCheckError(Exception):
    """Root of the tree."""


class SettingsError(CrossCheckError, ValueError):
    """A configuration value is not allowed, or two of them exclude each other."""


class DirectoryError(CrossCheckError):
    """A directory for artefacts cannot be created, written or trusted."""


class PublishError(CrossCheckError):
    """An artefact could not be saved; nothing of it is visible to the other run."""


class DamagedError(CrossCheckError):
    """An artefact is complete by name but truncated, altered, or not of this format."""


class UnreadableError(DamagedError):
    """A file is there and could not be read, as with a file server that is away: nothing is known of its content."""


class SpaceError(CrossCheckError):
    """There is less free space than the last artefact of the kind took; the message says how much is missing."""


class EncodingError(CrossCheckError):
    """A value has no representation in the format; the message names its key."""


class MismatchError(CrossCheckError):
    """An artefact was made for other prompts, another kind of call or another step than the reader's own."""


class AgreementError(CrossCheckError):
    """The configurations of the two runs, or their models, tokenizers or data, differ where they must not."""


class SessionError(CrossCheckError):
    """Another run holds this run's place in the exchange directory, or has taken it."""


class ResumeError(CrossCheckError):
    """What a run needs to go on is neither on the disk nor going to be made; says which steps are available."""


class PeerFailedError(CrossCheckError):
    """The other run has ended; the message says who, at which step, and why."""


class PeerSilentError(CrossCheckError):
    """Nothing of the other run has changed for `trainer.share_data_silence_s`."""


class WaitTimeoutError(CrossCheckError, TimeoutError):
    """What was waited for did not arrive in time."""
