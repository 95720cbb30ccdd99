import math
from collections import Counter

import pytest

from tare import cuts, experiment, plan
from tare.cell import one_word
from tare.cli.plan import print_plan
from tare.errors import UnavailableError, UsageError
from tare.workloads import rows


def parse(text: str) -> experiment.Experiment:
    return experiment.parse(text, "x.yaml")


def paper(extra: str = "") -> experiment.Experiment:
    return parse(
        """
title: t
factors:
  environment: [native, container, qemu]
  transport: [icmp, udp, cyclonedds, fastdds]
  reception: [listener, waitset]
  payload: [64 B, 512 B]
  server_work: [0 us, 100 us]
baseline: {environment: native}
floor: {transport: udp}
blocks: {min: 12, max: 14}
"""
        + extra
    )


def small(extra: str = "blocks: {min: 8, max: 9}") -> experiment.Experiment:
    return parse(
        f"title: t\nfactors: {{environment: [native, container], transport: [udp, icmp]}}\n"
        f"baseline: {{environment: native}}\n{extra}\n"
    )


def without(made, factor, absent):
    """A plan without some levels of a factor, each with why."""
    gone = [
        cuts.Absent(level, why, frozenset(c.id for c in made.cells if c.levels[factor] == level))
        for level, why in absent.items()
    ]
    return cuts.without(made, gone)


def test_factors_that_do_not_apply_collapse_so_that_paper_a_has_66_cells():
    made = plan.make(paper(), seed=1)
    assert sum(cell.replica == 1 for cell in made.cells) == 66
    icmp = [c for c in made.cells if c.levels["transport"] == "icmp"]
    assert all("reception" not in c.levels and "server_work" not in c.levels for c in icmp)


def test_every_cell_is_visited_once_in_every_block():
    made = plan.make(paper(), seed=1)
    for block in made.blocks:
        visited = Counter(cell for visit in block for cell in visit.cells)
        assert visited == Counter(cell.id for cell in made.cells)


def test_cells_of_one_guest_share_its_boot_and_only_those():
    made = plan.make(paper(), seed=1)
    for visit in made.blocks[0]:
        assert {made.cell(c).levels["environment"] for c in visit.cells} == {
            visit.plot["environment"]
        }
    originals = [v for v in made.blocks[0] if any(made.cell(c).replica == 1 for c in v.cells)]
    assert len(originals) == 3


def visits_of_pairs(made):
    """For each A/A pair of each block: whether one visit holds both arms."""
    pairs = [{c.cell, c.against} for c in made.comparisons if c.kind == "a/a"]
    assert pairs
    return [any(p <= set(v.cells) for v in block) for block in made.blocks for p in pairs]


def test_where_environments_are_compared_the_second_arm_of_a_pair_has_a_boot_of_its_own():
    made = plan.make(paper(), seed=1)
    assert not any(visits_of_pairs(made))
    assert not any(made.together(c) for c in made.comparisons if c.kind == "a/a")
    for visit in made.blocks[0]:
        assert len({made.cell(c).replica for c in visit.cells}) == 1
    plots = [tuple(visit.plot.items()) for visit in made.blocks[0]]
    assert len(plots) == 5  # three environments, and native and the guest once more
    assert len(set(plots)) == 3


@pytest.mark.parametrize(
    ("workload", "factors", "baseline"),
    [
        ("migration", "arm: [plain, pageshare], guest: [web, spin]", "arm: plain"),
        ("mpi-io", "cache: [plain, nvio], filesystem: [glusterfs, tmpfs]", "cache: plain"),
        ("request-reply", "server_work: [0 us, 100 us]", "server_work: 0 us"),
    ],
)
def test_where_all_is_compared_within_one_setting_up_a_pair_costs_none_of_its_own(
    workload, factors, baseline
):
    asked = parse(
        f"title: t\nworkload: {workload}\nfactors: {{{factors}}}\nbaseline: {{{baseline}}}\n"
    )
    made = plan.make(asked, seed=1)
    assert all(visits_of_pairs(made))
    assert all(made.together(comparison) for comparison in made.comparisons)
    plots = [tuple(visit.plot.items()) for visit in made.blocks[0]]
    assert len(plots) == len(set(plots))


def test_without_any_comparison_a_pair_shows_what_a_restart_differs_by():
    asked = parse("title: t\nfactors: {environment: native}\nbaseline: {environment: native}\n")
    assert not any(visits_of_pairs(plan.make(asked, seed=1)))


def test_a_cell_is_named_in_one_word_that_can_be_read():
    assert one_word("host=first guest=all") == "host=first,guest=all"
    assert one_word("micro 82.8 %") == "micro82.8%"


@pytest.mark.parametrize(
    "factors",
    ["n: ['a b', ab]", "n: [a/b, a], m: [c, b/c]", "n: [x, 'x#2']", "n: ['a b', ab, '\"ab\"']"],
)
def test_levels_that_read_alike_are_cells_of_their_own_with_names_of_their_own(factors):
    asked = parse(
        f"title: t\nworkload: command\nfactors: {{command: 'echo {{n}} {{m}}', {factors}}}\n"
        "baseline: {}\na_a: [{environment: native}]\n"
    )
    made = plan.make(asked, seed=1)
    combinations = math.prod(len(levels) for levels in asked.factors.values())
    assert len({tuple(cell.levels.items()) for cell in made.cells}) == combinations
    assert len({cell.id for cell in made.cells}) == len(made.cells) == 2 * combinations
    for pair in (c for c in made.comparisons if c.kind == "a/a"):
        assert made.cell(pair.cell).levels == made.cell(pair.against).levels


def test_the_seed_decides_the_order_and_nothing_else():
    a, b, c = (plan.make(paper(), seed=s) for s in (1, 1, 2))
    assert a == b
    assert a.blocks != c.blocks
    assert a.cells == c.cells


def test_orders_differ_between_blocks():
    made = plan.make(paper(), seed=1)
    assert len({tuple(v.cells for v in block) for block in made.blocks}) == len(made.blocks)


def test_each_cell_is_compared_with_the_one_that_differs_in_the_baseline_alone():
    made = plan.make(paper(), seed=1)
    effects = [c for c in made.comparisons if c.kind == "effect"]
    assert len(effects) == 44
    for comparison in effects:
        cell, against = made.cell(comparison.cell), made.cell(comparison.against)
        assert against.levels["environment"] == "native"
        others = dict(against.without("environment"))
        assert others.items() <= cell.levels.items()
        assert set(cell.levels) - set(against.levels) <= set(rows.GUEST)


def test_a_a_pairs_are_always_there():
    pairs = [c for c in plan.make(small()).comparisons if c.kind == "a/a"]
    assert pairs
    assert not any(c.family for c in pairs)


def test_a_family_that_the_blocks_cannot_resolve_is_refused_with_the_number_that_would_do():
    # The smallest two-sided sign-flip p at 6 blocks is 2/64 = 0.031: too large for two comparisons.
    refused = r"6 blocks cannot resolve 2 comparisons.*0\.031"
    with pytest.raises(UsageError, match=refused) as caught:
        plan.make(small("blocks: {min: 6, max: 9}"))
    assert "measure 7 or more" in str(caught.value.remedy)


def test_a_smaller_family_is_resolved():
    extra = "blocks: {min: 6, max: 9}\nfamily: {transport: udp}"
    assert len(plan.make(small(extra)).family) == 1


def test_exclusions_leave_cells_out():
    made = plan.make(small("exclude: [{environment: container, transport: icmp}]"))
    assert not any("container" in c.id and "icmp" in c.id for c in made.cells)


def test_excluding_everything_is_refused():
    with pytest.raises(UsageError, match="leave no cell"):
        plan.make(small("exclude: [{transport: [udp, icmp]}]"))


def test_a_budget_is_kept_and_says_what_it_cut():
    made = plan.make(paper(), seed=1)
    budget = made.seconds() * 0.8
    cut = cuts.fit(made, budget)
    assert cut.seconds() <= budget
    assert cut.cuts
    assert {c.id for c in cut.cells} == {c.id for c in made.cells}


def test_a_budget_that_is_large_enough_cuts_nothing():
    made = plan.make(small(), seed=1)
    assert cuts.fit(made, 1e6) == made


def test_a_budget_never_cuts_below_what_gives_a_verdict():
    with pytest.raises(UsageError, match="too short"):
        cuts.fit(plan.make(small()), 1.0)


def test_sessions_too_short_for_the_percentile_that_is_judged_are_refused():
    def asked(requests, clients=1):
        found = small(f"statistic: p99\nsession: {{requests: {requests}}}")
        factors = {**found.factors, "clients": (str(clients),)}
        return found.model_copy(update={"factors": factors})

    with pytest.raises(UsageError, match="298 requests of a client never resolve p99") as caught:
        plan.make(asked(298))
    assert caught.value.remedy.startswith("set session.requests to 299 or more")
    plan.make(asked(299))
    plan.make(asked(75, clients=4))  # they are 300 together
    with pytest.raises(UsageError, match="74 requests"):
        plan.make(asked(74, clients=4))


def test_a_budget_leaves_as_many_requests_as_the_percentile_takes():
    made = plan.make(small("statistic: p99\nsession: {requests: 400, warmup: 0}"), seed=1)
    per_request = (
        made.seconds()
        - made.model_copy(update={"session": made.session.but(requests="399")}).seconds()
    )
    cut = cuts.fit(made, made.seconds() - 90 * per_request)
    assert cut.session["requests"] == "300"
    cut = cuts.fit(made, made.seconds() - 150 * per_request)
    assert cut.session["requests"] == "299"
    assert cut.min_blocks < made.min_blocks


def test_an_absent_environment_is_left_out_and_named():
    made = plan.make(paper(), seed=1)
    left = without(made, "environment", {"qemu": "qemu-system-x86_64 is not installed"})
    assert not any(c.levels["environment"] == "qemu" for c in left.cells)
    assert all(v.plot["environment"] != "qemu" for block in left.blocks for v in block)
    assert left.cuts == ("without qemu: qemu-system-x86_64 is not installed",)


def test_a_plan_that_has_lost_everything_to_compare_is_refused():
    made = plan.make(paper(), seed=1)
    with pytest.raises(UnavailableError, match="nothing is left to compare here: without qemu: a"):
        without(made, "environment", {"qemu": "absent", "container": "absent too"})


def test_a_plan_survives_being_written_down():
    made = plan.make(paper(), seed=1)
    assert plan.Plan.model_validate_json(made.model_dump_json()) == made


def test_a_transport_that_is_not_built_is_left_out_of_every_visit():
    made = plan.make(paper(), seed=1)
    left = without(made, "transport", {"fastdds": "not built"})
    gone = {c.id for c in made.cells if c.levels["transport"] == "fastdds"}
    assert gone
    assert not gone & {cell for block in left.blocks for visit in block for cell in visit.cells}
    assert not gone & {c.cell for c in left.comparisons}
    assert len(left.blocks[0]) == len(made.blocks[0])


def test_what_was_left_out_is_still_said_after_a_budget_cut():
    left = without(plan.make(paper(), seed=1), "environment", {"qemu": "absent"})
    cut = cuts.fit(left, left.seconds() * 0.9)
    assert cut.cuts[0] == "without qemu: absent"
    assert len(cut.cuts) > 1


def test_operations_are_counted_in_no_setting_up_of_a_second_arm():
    made = plan.make(small("causes: 5\nblocks: {min: 8, max: 9}"), seed=1)
    counted = [cell for visit in made.counted for cell in visit.cells]
    assert sorted(counted) == sorted(c.id for c in made.cells if c.replica == 1)
    assert len(made.counted) == 2 < len(made.blocks[0])


@pytest.mark.parametrize(("causes", "few"), [(1, True), (2, False)])
def test_a_plan_says_where_operations_are_counted_too_few_times(causes, few, capsys):
    print_plan(plan.make(small(f"causes: {causes}"), seed=1))
    assert ("the budget by operation takes two" in capsys.readouterr().out) == few


def test_sessions_that_count_operations_are_in_the_expected_duration_and_are_cut_first():
    without = plan.make(small(), seed=1)
    counting = plan.make(small("causes: 5\nblocks: {min: 8, max: 9}"), seed=1)
    assert counting.seconds() > without.seconds()
    cut = cuts.fit(counting, without.seconds())
    assert cut.causes == 0
    assert cut.min_blocks == counting.min_blocks
    assert cut.session == counting.session
    assert "operations are counted 0 times instead of 5" in cut.cuts
    one = cuts.fit(counting, without.seconds() + counting.causes_seconds() / 4)
    assert one.causes == 1
    assert any(
        cut.endswith("instead of 5, too few for the budget by operation") for cut in one.cuts
    )
