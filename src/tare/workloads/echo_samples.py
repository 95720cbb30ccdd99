"""Reader of the samples that the echo programs write: docs/formats/echo-samples.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tare.errors import TareError, TrialError

_HEADER = struct.Struct("<8sIIIIQIIII16x")
_MAGIC = b"TAREECHO"
_RECORD = np.dtype(
    [
        ("client", "<u4"),
        ("sequence", "<u4"),
        ("intended_ns", "<i8"),
        ("sent_ns", "<i8"),
        ("received_ns", "<i8"),
    ]
)
RECORD_BYTES = _RECORD.itemsize
LOST = -1
"""`received_ns` of a request that was never answered."""


@dataclass(frozen=True)
class EchoSamples:
    """The samples of one session.

    Attributes:
        records: shape (requests,), fields client, sequence, intended_ns, sent_ns, received_ns.
        payload_bytes: of each request.
        clients: independent requesters.
        mode: "closed" or "open".
    """

    records: npt.NDArray[np.void]
    payload_bytes: int
    clients: int
    mode: str


def parse(data: bytes) -> EchoSamples:
    """Read a whole sample file.

    Raises:
        TrialError: it is not one, or it is cut short.
    """
    if len(data) < _HEADER.size:
        raise TrialError(f"the sample file ends after {len(data)} bytes, within its header")
    magic, version, header, record, clock, count, payload, clients, mode, _ = _HEADER.unpack_from(
        data
    )
    if magic != _MAGIC:
        raise TrialError(f"the sample file begins with {magic!r}, not {_MAGIC!r}")
    if version != 1:
        raise TrialError(f"the sample file has version {version}; this tare reads version 1")
    if (header, record, clock) != (_HEADER.size, _RECORD.itemsize, 1) or mode not in (1, 2):
        raise TrialError("the sample file's header contradicts its version")
    if len(data) != header + count * record:
        raise TrialError(
            f"the sample file holds {len(data)} bytes, but its header promises {count} samples"
        )
    records = np.frombuffer(data, dtype=_RECORD, offset=header)
    return EchoSamples(records, payload, clients, "closed" if mode == 1 else "open")


def to_parquet(samples: EchoSamples, path: Path) -> None:
    """Write samples as Parquet (docs/formats/results.md); whole or not at all.

    Raises:
        TareError: the disk is full.
    """
    import pyarrow as pa  # noqa: PLC0415 - every command reads this file, few write samples
    import pyarrow.parquet as pq  # noqa: PLC0415

    records = samples.records
    received = records["received_ns"].astype(np.int64)
    table = pa.table(
        {
            "client": pa.array(records["client"].astype(np.int32)),
            "sequence": pa.array(records["sequence"].astype(np.int32)),
            "intended_ns": pa.array(records["intended_ns"].astype(np.int64)),
            "sent_ns": pa.array(records["sent_ns"].astype(np.int64)),
            "received_ns": pa.array(received, mask=received == LOST),
        }
    )
    part = path.with_suffix(".parquet.part")
    try:
        pq.write_table(table, part, compression="zstd")
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TareError(
            f"cannot write the samples to {path}: {error.strerror}",
            "make room, then resume with `tare run --resume FOLDER`: nothing is lost",
        ) from error
