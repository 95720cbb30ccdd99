"""The page: self-contained, safe whatever a title says, and honest about what is missing."""

import html
import json
import re

import numpy as np
import pytest
import rich

import records
from tare import analysis, report, transports
from tare.errors import TareError
from tare.record import Loss, Record, Resumption
from tare.report import remarks, terminal, wording
from tare.report.tables import times

LIMIT = 5_000_000
HOSTILE = (
    """</title></style></script><script>alert('x')</script><img src=x onerror=alert(1)>{{ 7*7 }}"""
)
TEXT = """\
title: %s
description: %s
factors: {environment: [native, qemu], transport: [udp, cyclonedds]}
baseline: {environment: native}
floor: {transport: udp}
deadlines: [10 ms]
blocks: {min: 8, max: 8}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    recipe = records.Recipe(failing=frozenset({(3, "container/udp")}), lost={"qemu/fastdds": 2})
    return analysis.analyse(records.make(tmp_path_factory.mktemp("page") / "r", recipe))


@pytest.fixture(scope="module")
def page(found):
    return report.render(found)


def words(page):
    """What a reader reads: no markup, no script, no style, one space."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


def test_a_verdict_is_a_plain_sentence_with_numbers_and_intervals(page):
    assert re.search(
        "A response through Cyclone DDS takes 2\\d\\.\\d \N{MULTIPLICATION SIGN} "
        r"\[2\d\.\d, 2\d\.\d\] as long in the QEMU"
        r" guest \(TCG\) as on the host: 4\d\d µs against 1[67]\.\d+ µs",
        words(page),
    )


def test_the_page_loads_nothing(page):
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:,)""", page)
    assert not re.search(r"@import|url\(", page)
    assert re.findall(r"https?://[^\s\"'<]+", page) == []


def test_the_page_is_under_five_megabytes(page):
    assert len(page.encode()) < LIMIT


def test_the_page_has_no_scripts_and_none_may_run(page):
    assert "<script" not in page
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'\"" in page


def test_every_figure_is_drawn_and_described(page):
    for name in (
        *("answers", "levels", "distributions", "sessions", "pairs"),
        *("budget", "account", "deadlines", "paper"),
    ):
        figure = re.search(rf'<figure id="figure-{name}".*?</figure>', page, re.DOTALL)[0]
        assert "<svg" in figure
        assert "<figcaption>" in figure
        # Strips are words and numbers themselves; panels are told in words.
        assert ('class="number"' in figure) or ('role="img" aria-label="' in figure)


def test_accelerator_and_mode_stand_below_every_table_of_measurements(page):
    notes = re.findall(r'<p class="note">(.*?)</p>', page)
    assert sum(note.startswith("Guest under TCG. Closed loop") for note in notes) >= 8


def test_what_failed_is_told_with_its_reason(page):
    assert "1 of 112 trials failed" in words(page)
    assert "cannot bind 10.0.0.2:7400" in words(page)


def test_what_cannot_be_resolved_is_called_so(page):
    assert "unresolved" in words(page)


def test_the_longest_of_all_is_the_longest_of_a_block_with_several_sessions(tmp_path):
    text = (TEXT % ("t", "d")).replace("max: 8}", "max: 8, sessions: 2}")
    record = records.make(tmp_path / "r", records.Recipe(requests=100), text)
    trial = next(trial for trial in record.trials() if trial.cell == "native/udp")
    responses = np.full(100, 7_000)
    responses[50] = 50_000_000
    records.write_samples(record.samples_path(trial), responses)
    drawn = analysis.analyse(record)
    table = times.tails(drawn, wording.names_of(drawn))
    assert [row[-2] for row in table.rows].count("50000\N{NO-BREAK SPACE}µs") == 1


def test_published_figures_stand_beside_ours(page):
    assert "about 120 to 300 %" in words(page)


def test_what_the_page_says_is_there_for_machines_too(found):
    said = json.loads(json.dumps(report.as_json(found)))
    assert len(said["questions"]) == len(found.questions)
    assert [row["figure"]["id"] for row in said["beside"]] == [r.figure.id for r in found.beside]
    assert said["cells"][0]["deadlines"][0]["deadline_ns"] == 10e6


def test_the_command_that_repeats_the_run_is_given(page, found):
    assert f"tare run experiment.yaml --seed {found.plan.seed}" in words(page)


def test_hostile_text_stays_text(tmp_path):
    quoted = json.dumps(HOSTILE)
    recipe = records.Recipe(
        requests=100, blocks=2, failing=frozenset({(0, "qemu/udp")}), error=HOSTILE
    )
    text = TEXT % (quoted, quoted)
    fingerprint = {**records.FINGERPRINT, "system": HOSTILE, HOSTILE: HOSTILE}
    record = records.make(tmp_path / "r", recipe, text, fingerprint)
    page = report.render(analysis.analyse(record))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert len(re.findall("<script", page, re.IGNORECASE)) == len(re.findall("</script", page))
    assert "{{ 7*7 }}" in html.unescape(page)


def test_text_in_figures_is_escaped_too(found, monkeypatch):
    monkeypatch.setattr(transports, "ROWS", [transports.Transport("udp", HOSTILE)])
    page = report.render(found)
    assert "<script>alert" not in page
    assert "<img" not in page


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_run_that_has_only_begun_has_a_page_that_says_so(tmp_path, blocks):
    text = TEXT % ("Begun", "Not yet done.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=blocks, requests=100), text)
    shown = words(report.render(analysis.analyse(record)))
    assert f"{blocks} of at least 8 planned blocks are on record" in shown
    assert "provisional" in shown


def test_all_that_failed_is_a_page_too(tmp_path):
    text = TEXT % ("Failed", "Nothing worked.")
    cells = ("native/udp", "native/cyclonedds", "qemu/udp", "qemu/cyclonedds")
    cells += ("native/udp#2", "qemu/udp#2")
    failing = frozenset((block, cell) for block in range(2) for cell in cells)
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, failing=failing), text)
    found = analysis.analyse(record)
    assert f"{len(found.trials)} of {len(found.trials)} trials failed" in words(
        report.render(found)
    )


def test_a_large_experiment_stays_under_five_megabytes(tmp_path):
    text = """\
title: Large
factors:
  environment: [native, container, qemu]
  transport: [icmp, udp, cyclonedds, fastdds]
  reception: [listener, waitset]
  payload: [64 B, 512 B]
  server_work: [0 us, 100 us]
baseline: {environment: native}
floor: {transport: udp}
family: {transport: [cyclonedds], payload: 64 B, server_work: 0 us, reception: listener}
deadlines: [10 ms, 100 ms]
blocks: {min: 8, max: 30}
"""
    record = records.make(tmp_path / "r", records.Recipe(blocks=4, requests=60), text)
    found = analysis.analyse(record)
    assert len(found.cells) > 60
    assert len(report.render(found).encode()) < LIMIT


def test_many_answers_are_folded_below_a_tally(tmp_path):
    text = (TEXT % ("Many", "Folded.")).replace("deadlines", "margin: 5 %\ndeadlines")
    sizes = ", ".join(f"{64 << i} B" for i in range(9))
    text = text.replace("transport: [udp", f"payload: [{sizes}], transport: [udp, zeromq")
    text = text.replace("floor: {transport: udp}\n", "").replace(
        "min: 8, max: 8", "min: 11, max: 11"
    )

    def truth(cell):
        return 100.0 if cell.levels["environment"] == "native" else 300.0

    recipe = records.Recipe(blocks=1, requests=20, truth_us=truth)
    page = report.render(analysis.analyse(records.make(tmp_path / "r", recipe, text)))
    group = re.search(r'<details class="group"([^>]*)>', page)[1]
    assert "open" not in group
    assert "27 inconclusive" in words(page)


def test_the_json_is_plain(found):
    plain = report.as_json(found)
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert again["questions"][0]["ratio"]["ratio"]["confidence"] == 0.95


def test_the_summary_for_the_terminal_has_every_verdict(found, capsys):
    rich.print(terminal.summary(found))
    shown = capsys.readouterr().out
    assert "In the QEMU guest (TCG): all 3 slower" in " ".join(shown.split())
    for question in found.questions:
        if question.judgement is not None:
            assert str(question.judgement.verdict) in shown
    assert "Noise floor" in shown


def test_without_the_words_of_the_experiment_the_page_is_drawn_and_says_so(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=20))
    record.experiment_path.write_bytes(b"title: \xfc\n")
    assert "title: " in report.render(analysis.analyse(record))
    record.experiment_path.unlink()
    page = report.render(analysis.analyse(record))
    assert "experiment.yaml cannot be read: No such file or directory." in page


def test_a_page_that_cannot_be_written_leaves_nothing_half_done(tmp_path):
    path = tmp_path / "report.html"
    path.mkdir()
    with pytest.raises(TareError, match=r"cannot write the report .*report.html"):
        report.write("a page", path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cell_that_mixes_accelerators_is_marked_and_told(tmp_path):
    text = TEXT % ("Mixed", "KVM went.")
    recipe = records.Recipe(
        blocks=2,
        requests=100,
        accelerator=lambda block, cell: "kvm" if (block, cell) == (0, "qemu/udp") else "tcg",
    )
    found = analysis.analyse(records.make(tmp_path / "r", recipe, text))
    names = wording.names_of(found)
    (said,) = (s for s in remarks.observations(found, names) if "ran under" in s)
    assert "ran under KVM and some under TCG" in said
    assert "(KVM+TCG)" in words(report.render(found))


def test_what_differed_when_a_run_was_resumed_is_told(tmp_path):
    text = TEXT % ("Resumed", "Twice.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), text)
    other = {**records.FINGERPRINT, "tare": {"version": "0.2.0", "commit": None}}
    with record.writing() as writer:
        for day, fingerprint in enumerate((records.FINGERPRINT, other), start=1):
            resumed = f"2026-01-0{day}T09:30:00.000+00:00"
            writer.append(Resumption(resumed=resumed, fingerprint=fingerprint))
    said = words(report.render(analysis.analyse(record)))
    assert "Resumed 2026-01-01 09:30 UTC: what differed from the beginning nothing" in said
    assert "2026-01-02 09:30 UTC: what differed from the beginning tare.version 0.1.0" in said


def test_pairs_that_shared_a_boot_where_cells_did_not_are_said_to_show_too_little(tmp_path):
    """As results have them from before second arms were set up by themselves."""
    text = TEXT % ("Old", "Planned by an earlier version.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), text)
    said = remarks.noise(analysis.analyse(record))
    assert not any("one setting up" in sentence for sentence in said)
    path = record.folder / "plan.json"
    old = json.loads(path.read_text())
    for number, block in enumerate(old["blocks"]):
        together: dict[str, dict[str, object]] = {}
        for visit in block:
            known = together.setdefault(json.dumps(visit["plot"]), {**visit, "cells": []})
            known["cells"] += visit["cells"]
        old["blocks"][number] = list(together.values())
    path.write_text(json.dumps(old))
    found = analysis.analyse(Record(record.folder))
    assert "Both arms of 2 A/A pairs" in remarks.noise(found)[0]


def test_pairs_that_could_not_be_found_different_bound_nothing(tmp_path, found):
    text = TEXT % ("Few", "Two blocks.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), text)
    assert "says nothing of false positives" in remarks.noise(analysis.analyse(record))[-1]
    assert " of 2 at level 0.05" in remarks.noise(found)[-1]


def test_a_busy_machine_is_told_at_the_top(tmp_path):
    text = TEXT % ("Busy", "Others worked.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), text)
    path = record.folder / "trials.ndjson"
    path.write_text(path.read_text().replace('"load_1min":0.8', '"load_1min":17.0'))
    (record.folder / "environment.json").write_text('{"cpu": {"usable": 2}}')
    assert "17" in remarks.cautions(analysis.analyse(record))[0]


def test_what_failed_behind_its_trials_is_told_at_the_top(tmp_path):
    text = TEXT % ("Kept", "Nothing came back.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), text)
    with record.writing() as writer:
        writer.append(Loss(block=0, session="s", error="native: cannot bring /x back"))
    said = words(report.render(analysis.analyse(record)))
    assert "After its trials of block 0, native: cannot bring /x back" in said


def test_a_trial_that_the_hypervisor_stole_from_is_named_and_stays(tmp_path):
    text = TEXT % ("Stolen", "The machine was not ours alone.")
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), text)
    found = analysis.analyse(record)
    names = wording.names_of(found)
    assert not any("hypervisor" in said for said in remarks.observations(found, names))
    path = record.folder / "trials.ndjson"
    lines = path.read_text().splitlines()
    disturbed = json.loads(lines[-1])
    disturbed["machine"]["steal_ns"] = 250_000_000
    path.write_text("\n".join([*lines[:-1], json.dumps(disturbed)]) + "\n")
    after = analysis.analyse(record)
    (said,) = (s for s in remarks.observations(after, names) if "hypervisor" in s)
    assert "5 % of a processor's time, at worst 50.0\N{NO-BREAK SPACE}%, in 1 trial of 12" in said
    assert f"(block {disturbed['block'] + 1})" in said
    assert after.view(disturbed["cell"]).estimates == found.view(disturbed["cell"]).estimates
