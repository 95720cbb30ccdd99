"""Live migration between two hosts, on one machine (paper D).

`workload` is what the lab sees; `testbed` the two hosts and three guests, of which each is a
`guest`; `arms` the ways to migrate, by `proxies` or without; `journey` one migration in time;
`load` what the guests are asked, `beside` what they answered, `usage` what it cost.
"""

from __future__ import annotations

from tare.workloads.migration.workload import Migration

__all__ = ["WORKLOAD", "Migration"]

WORKLOAD = Migration()
