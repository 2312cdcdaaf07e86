"""Every query of the Grafana dashboard finds something in what a gateway with a history really serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from afterwit.chat_format.render import Renderer
from afterwit.judging.ability import keep_shares
from afterwit.lifecycle import State
from afterwit.store import Filter, Store
from afterwit.turn import Message
from tests.browser.world import world_in

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "src/afterwit/demo/tools/model"
DASHBOARD = json.loads((ROOT / "deploy/grafana/afterwit.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [
    pytest.param(target, id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
PROMETHEUS = "127.0.0.1:8720"
"""Prometheus's own name for the gateway that it reads, in the label `instance`."""
Series = list[tuple[str, dict[str, str]]]


@pytest.fixture(scope="module")
async def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    """The series of `/metrics` after ninety sessions, an unjudged answer, a request and a judge's check."""
    async with world_in(tmp_path_factory.mktemp("history"), Renderer.load(MODEL)) as world:
        await world.serving.store.call(lambda store: keep_shares(store, {"right": 0.9, "invalid": 0.0}))
        await world.serving.store.call(answer_one)
        assert (await world.serving.ask(model="afterwit")).status_code == 200
        text = (await world.serving.http.get(f"{world.url}/metrics", headers=world.serving.owner)).text
    return [
        (sample.name, {**sample.labels, "instance": PROMETHEUS})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def answer_one(store: Store) -> None:
    """A turn that nothing followed yet is answered; the judge has not come to it."""
    waiting = next(store.turns(Filter(state=State.OPEN)))
    store.answer(waiting.turn.id, [Message(role="user", content="Thanks.")], answered_by=None, now=1e10)


def selectors(node: Any) -> Iterator[promql_parser.VectorSelector]:
    """The selectors of series in a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "param", "vs", "vector_selector", "args"):
        below = getattr(node, name, None)
        for each in below if isinstance(below, list) else [below]:
            if each is not None:
                yield from selectors(each)


def found(selector: promql_parser.VectorSelector, series: Series) -> list[dict[str, str]]:
    """The labels of the series that a selector picks."""
    matchers = [(each.name, str(each.op), each.value) for each in selector.matchers.matchers]
    return [
        labels
        for name, labels in series
        if name == selector.name and all(matches(labels, *matcher) for matcher in matchers)
    ]


def matches(labels: Mapping[str, str], name: str, op: str, value: str) -> bool:
    if "Re" in op:
        return name in labels and re.fullmatch(value, labels[name]) is not None
    assert "Equal" in op
    return labels.get(name) == value


def parsed(query: str) -> Any:
    return promql_parser.parse(query.replace("$instance", ".*"))


@pytest.mark.parametrize("target", TARGETS)
async def test_every_query_finds_series_with_the_labels_that_it_names(
    target: Mapping[str, Any], series: Series
) -> None:
    query = parsed(target["expr"])
    picked = [found(selector, series) for selector in selectors(query)]
    assert picked, "the query reads no metric"
    assert all(picked), f"{target['expr']} finds nothing for one of its metrics"
    shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    grouped = getattr(getattr(query, "modifier", None), "labels", [])
    assert all(label in labels for labels in picked[0] for label in {*shown, *grouped})
    if grouped:
        assert set(shown) == set(grouped)


async def test_every_name_in_an_alternative_is_one_that_is_served_or_that_another_objective_has(
    series: Series,
) -> None:
    """The other alternative of `a|b` would hide a misspelt one."""
    for param in TARGETS:
        (target,) = param.values
        for selector in selectors(parsed(target["expr"])):
            for matcher in selector.matchers.matchers:
                there = {labels.get(matcher.name) for name, labels in series if name == selector.name}
                for alternative in matcher.value.split("|") if "Re" in str(matcher.op) else ():
                    assert alternative in there | {".*", "combine"}, (selector.name, alternative)


def test_variables_and_notes_read_what_is_served_and_no_two_panels_overlap() -> None:
    (instance,) = [each for each in DASHBOARD["templating"]["list"] if each["name"] == "instance"]
    assert instance["query"]["query"] == "label_values(afterwit_weight_version, instance)"
    for note in DASHBOARD["annotations"]["list"]:
        assert [each.name for each in selectors(parsed(note["expr"]))] == ["afterwit_newest_version"]
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


async def test_the_learner_and_the_judge_have_few_series(series: Series) -> None:
    """Labels are names in the code: no turn, session or key is one."""
    own = [labels for name, labels in series if re.match(r"afterwit_(learner|judged|people|suite)", name)]
    assert 10 < len(own) < 100
    assert {label for labels in own for label in labels} == {"metric", "part", "instance"}
