"""A transport's row and its program say the same of it."""

import pytest

from needs import PROGRAMS
from tare import transports
from tare.command import Command
from tare.process import run


@pytest.mark.parametrize("row", transports.ROWS, ids=lambda row: row.name)
def test_a_row_agrees_with_what_the_program_offers(row):
    if row.name == "connext" and row.missing(PROGRAMS):
        pytest.skip("RTI Connext needs a licence")
    serve, ask = (
        run(Command((str(PROGRAMS / row.program), command, "--help")), 30).stdout
        for command in ("serve", "ask")
    )
    assert ("--domain" in serve) == (row.domain is not None)
    assert ("--port" in serve) == row.has_port
    assert ("--work-ns" in serve) == (row.answered_by != "kernel")
    assert ("--peer" in ask) == (row.answered_by != "client")
    assert f"at most {row.most_bytes} bytes" in ask


def test_each_dds_has_a_domain_of_its_own_and_its_ports_are_known():
    domains = [row.domain for row in transports.ROWS if row.domain is not None]
    assert len(set(domains)) == len(domains)
    assert len(set(transports.ports())) == 1 + 2 * len(domains)
