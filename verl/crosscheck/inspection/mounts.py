# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Find the file system of a folder in /proc/mounts, and what is known of file systems of its kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/mounts")
_ESCAPE = re.compile(r"\\([0-7]{3})")

_LOCAL = "a local disk: only processes of this host can meet there"
_CAVEATS = {
    "nfs": "other hosts may see a new file late, for up to a minute as the mount option acdirmax says; both runs list "
    "folders to see it at once, and mounting with actimeo=1 helps",
    "cifs": "no owner and no mode of a Unix file unless the mount says so, so that checkpoints may be refused",
    "tmpfs": "memory of this host: other hosts see nothing of it, and checkpoints take memory away from the runs",
    "overlay": "the inside of a container: gone with it, and other hosts and containers see nothing of it",
    "fuse": "a file system in user space: the checks below show what it does of what the exchange needs",
    "lustre": "shared and consistent between hosts; hard on the metadata server if other jobs are",
    "gpfs": "shared and consistent between hosts",
    "beegfs": "shared between hosts; whether flock and hard links hold is for the mount's options",
    "ceph": "shared and consistent between hosts",
}
_KINDS = {
    "nfs4": "nfs",
    "smb3": "cifs",
    "ramfs": "tmpfs",
    "aufs": "overlay",
    "fuseblk": "fuse",
}
_LOCAL_KINDS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay"})


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Args:
        source: device or server.
        options: as the kernel lists them.
    """

    kind: str
    source: str
    point: str
    options: str

    @property
    def is_local(self) -> bool:
        """Whether only this host can see it, judged by its kind."""
        return _KINDS.get(self.kind, self.kind) in _LOCAL_KINDS

    @property
    def caveat(self) -> str:
        """What to know of file systems of this kind; empty if nothing special is known."""
        kind = _KINDS.get(self.kind, self.kind)
        found = _CAVEATS.get(kind) or _CAVEATS.get(kind.partition(".")[0], "")
        return found or (_LOCAL if self.is_local else "")


def mount_of(folder: Path, mounts: Path = _MOUNTS) -> Mount | None:
    """Return the file system of an absolute path without links; None where the kernel does not list mounts.

    Args:
        mounts: the kernel's table.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    best: Mount | None = None
    for line in lines:
        fields = [_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), field) for field in line.split(" ")]
        if len(fields) < 4 or not folder.is_relative_to(fields[1]):
            continue
        # The longest mount point holds the folder, the last one of the same name hides the others.
        if best is None or len(fields[1]) >= len(best.point):
            best = Mount(kind=fields[2], source=fields[0], point=fields[1], options=fields[3])
    return best
