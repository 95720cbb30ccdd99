"""The programs of the system that workloads run, and the Debian package of each."""

from __future__ import annotations

from collections.abc import Mapping

from tare.command import missing_packages

PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "cpu": {"stress-ng": "stress-ng", "sysbench": "sysbench"},
    "memory": {"stress-ng": "stress-ng", "sysbench": "sysbench"},
    "disk": {"hdparm": "hdparm", "fio": "fio", "losetup": "mount"},
    "disk over NFS": {
        "ganesha.nfsd": "nfs-ganesha",
        "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so": "nfs-ganesha-vfs",
    },
    "network": {"iperf3": "iperf3", "nc.openbsd": "netcat-openbsd"},
    "interference": {"stress-ng": "stress-ng", "iperf3": "iperf3", "fio": "fio"},
    "migration": {
        "qemu-system-x86_64": "qemu-system-x86",
        "mmdebstrap": "mmdebstrap",
        "mke2fs": "e2fsprogs",
        "qemu-img": "qemu-utils",
    },
    "mpi-io": {"mpiexec.mpich": "mpich", "mpirun.openmpi": "openmpi-bin"},
}
"""Workload -> the programs that it runs, each with its Debian package."""


def lacking(programs: Mapping[str, str]) -> str | None:
    """Say which of these programs are not here, and how to get them; None where all are.

    Args:
        programs: as of `PROGRAMS`.
    """
    names = missing_packages(programs)
    return f"not installed: {names}; apt-get install {names}" if names else None
