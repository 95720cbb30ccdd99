"""A result folder whose blocks are measured by tasks of Slurm.

    FOLDER/job.sh           the batch script
    FOLDER/logs/            what its tasks print
    FOLDER/.slurm/asked/    the whole plan: a result without trials
    FOLDER/.slurm/007-1/    the first attempt at block 7: a result of that block alone

What begins with a dot is looked for by nobody who lists results. An attempt never goes on with
another one, which may have been on another node: a block that was lost is measured whole again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from tare import lines, machine, repetition
from tare.command import shell_line
from tare.errors import TareError, UsageError
from tare.plan import Plan
from tare.record import Record, made
from tare.slurm.script import SCRIPT, Asked, ranges

_KEPT = ".slurm"
_ASKED = "asked"
Key = tuple[int, str, int]
"""Of a trial: block, cell, which of its sessions there."""


def apart(plan: Plan) -> Plan:
    """A plan whose blocks can be measured by themselves.

    Raises:
        UsageError: what one does depends on others, or it starts no MPI programs.
    """
    asked = plan.experiment
    if "ranks" not in plan.workload.levels.rows:
        raise UsageError(
            f"`tare slurm` is for MPI programs, and {asked.workload} starts none",
            "run it whole in one job: sbatch --exclusive --wrap 'tare run FILE'",
        )
    if plan.gate is not None:
        raise UsageError(
            "a gate ends a run by what its blocks have told, and tasks of Slurm know no others",
            "run it whole in one job: sbatch --exclusive --wrap 'tare run FILE --fail-on slower'",
        )
    if asked.blocks.sessions != "auto":
        return plan
    fixed = asked.blocks.model_copy(update={"sessions": 1})
    return plan.model_copy(
        update={
            "experiment": asked.model_copy(update={"blocks": fixed}),
            "cuts": (
                *plan.cuts,
                "sessions of a cell stay as many as planned: blocks that are measured apart cannot"
                " tell each other how many pay",
            ),
        }
    )


class Job:
    """The folder, as `create` made it.

    Args:
        folder: the result's.

    Raises:
        UsageError: it is not such a folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        if not (self._kept / _ASKED / "plan.json").is_file():
            raise UsageError(
                f"{folder} was not made by `tare slurm FILE`",
                "give the folder that it printed (below results/)",
            )
        self.asked = Record(self._kept / _ASKED)

    @classmethod
    def create(
        cls,
        folder: Path,
        text: str,
        plan: Plan,
        asked: Asked,
        fingerprint: Mapping[str, Any],
        *,
        numbered: bool = False,
    ) -> Job:
        """Make the folder: the script, and what its tasks read.

        Args:
            folder: new, on a file system that all nodes see.
            text: of the experiment file.
            plan: as `apart` gave it.
            asked: what each task asks of Slurm.
            fingerprint: of the machine that submits.
            numbered: whether NAME-2 and so on is made where it exists.

        Raises:
            TareError: it exists, or cannot be made.
        """
        folder = folder.absolute()
        if not f"{folder}{folder.resolve()}".isprintable():
            raise UsageError(f"no script can name {str(folder)!r}", "name another folder: --out")
        if not numbered and folder.is_dir() and any(folder.iterdir()):
            gather = shell_line("tare", "slurm", "--gather", folder)
            raise TareError(
                f"cannot make the result folder {folder}: it exists",
                f"name another one (--out), or gather it: {gather}",
            )

        def fill(part: Path, whole: Path) -> None:
            (part / "logs").mkdir()
            lines.replace(part / SCRIPT, asked.script(whole, range(plan.min_blocks)))
            (part / SCRIPT).chmod(0o755)
            Record.write(part / _KEPT / _ASKED, text, plan, fingerprint)

        return cls(made(folder, fill, numbered=numbered))

    @property
    def _kept(self) -> Path:
        return self.folder / _KEPT

    @property
    def script(self) -> Path:
        """The batch script."""
        return self.folder / SCRIPT

    def again(self, blocks: Iterable[int]) -> str:
        """The command line that measures some blocks, as many at once as the script does.

        What `sbatch` is given stands for the whole of the script's own `--array`.
        """
        own = re.search(r"^#SBATCH --array=\S+(%\d+)$", self.script.read_text(), re.MULTILINE)
        at_once = own[1] if own else ""
        return shell_line("sbatch", f"--array={ranges(blocks)}{at_once}", self.script)

    @cached_property
    def plan(self) -> Plan:
        """The whole plan."""
        return self.asked.plan

    def part(self, block: int) -> Plan:
        """The plan of one block: the whole one, whose other blocks do nothing.

        So a trial has the number, the order and the file of samples that it has in a whole run.

        Raises:
            UsageError: there is no such block.
        """
        if not 0 <= block < len(self.plan.blocks):
            raise UsageError(
                f"{self.folder} has no block {block}",
                f"give one of its blocks, 0 to {len(self.plan.blocks) - 1}",
            )
        only = tuple(() if n < block else self.plan.blocks[n] for n in range(block + 1))
        return self.plan.model_copy(update={"blocks": only, "min_blocks": 1})

    def trials(self, block: int) -> frozenset[Key]:
        """Every trial of a block."""
        return frozenset(
            (block, cell, repeat)
            for visit in self.plan.blocks[block]
            for cell, repeat in repetition.order(self.plan, block, visit, self.plan.sessions)
        )

    def holds(self, record: Record, block: int) -> bool:
        """Whether a result has every trial of a block on record, failed ones included."""
        return self.trials(block) <= {trial.key for trial in record.trials()}

    def unlike(self, one: Record, found: machine.Fingerprint) -> list[str]:
        """What of a machine and its programs forbids to put its blocks beside those of a result."""
        patterns = self.plan.workload.programs
        return machine.changed(one.fingerprint.whole, found.whole, patterns)

    def attempts(self) -> dict[int, list[Record]]:
        """Block -> the attempts at it that got as far as a plan, in their order."""
        found: dict[int, list[tuple[int, Record]]] = {}
        for folder in self._kept.iterdir():
            named = re.fullmatch(r"(\d+)-(\d+)", folder.name)
            if named and (folder / "plan.json").is_file():
                found.setdefault(int(named[1]), []).append((int(named[2]), Record(folder)))
        return {
            block: [record for _, record in sorted(tried, key=lambda one: one[0])]
            for block, tried in sorted(found.items())
        }

    def begin(self, block: int, fingerprint: Mapping[str, Any]) -> Record:
        """Make the result of a new attempt at a block.

        Args:
            block: from 0.
            fingerprint: of the node that measures it.

        Raises:
            UsageError: there is no such block.
            TareError: it cannot be made.
        """
        part = self.part(block)
        text = self.asked.experiment_path.read_text(encoding="utf-8")
        for number in count(1):
            folder = self._kept / f"{block:03d}-{number}"
            try:
                folder.mkdir()  # one of two tasks that begin the same block at once takes another
            except FileExistsError:
                continue
            except OSError as error:
                raise TareError(
                    f"cannot make {folder}: {error.strerror}",
                    "the folder has to be on a file system that the nodes can write",
                ) from error
            break
        return Record.create(folder, text, part, fingerprint)
