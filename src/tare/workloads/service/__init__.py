"""A server of yours in every environment, and a client of yours beside it.

`document` reads what an experiment file asks; `rows` has the factors and settings, `workload` what
the lab sees, `serving` the server's life: begun, ready, looked after, ended.
"""

from __future__ import annotations

from tare.workloads.service.workload import Service

__all__ = ["WORKLOAD", "Service"]

WORKLOAD = Service()
