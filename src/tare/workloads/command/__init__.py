"""Any command of the user's, in every environment.

`document` reads what an experiment file asks: commands, parameters, readings; `rows` has the
factors and settings, `workload` what the lab sees, `executing` what of it services share,
`executions` what `probe/execute` prints and what comes of it.
"""

from __future__ import annotations

from tare.workloads.command.workload import Command

__all__ = ["WORKLOAD", "Command"]

WORKLOAD = Command()
