"""The dashboard and the alert rules: they say what Prometheus understands, of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cograil import metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus"
DASHBOARD = DEPLOY / "grafana" / "cograil.json"
PARTS = ("_bucket", "_count", "_sum")


def promtool(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["promtool", *arguments], input=stdin, capture_output=True, text=True, cwd=RULES, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def expressions() -> Iterator[str]:
    """What the panels of the dashboard ask for."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def exposed() -> set[str]:
    """Every name that a sample may have."""
    names = set(metrics.DATABASE_METRICS)
    for name, family in metrics.PROCESS_METRICS.items():
        names |= {name + part for part in PARTS} if family.kind == "histogram" else {name}
    return names


def named(text: str) -> set[str]:
    return set(re.findall(r"\bcograil_\w+", text))


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")


def test_the_alerts_are_raised_when_they_must_be_and_only_then() -> None:
    promtool("test", "rules", "alerts_test.yml")
    rules, tests = ((RULES / name).read_text("utf-8") for name in ("alerts.yml", "alerts_test.yml"))
    for alert in re.findall(r"- alert: (\w+)", rules):
        assert f"{{eval_time: 30m, alertname: {alert}}}" in tests, "what is well raises nothing"
        assert re.search(rf"alertname: {alert}\n +exp_alerts:", tests), "and what is not, something"


def test_every_metric_that_is_named_is_exposed() -> None:
    shown = set().union(*map(named, expressions()))
    assert shown <= exposed(), shown - exposed()
    named_metrics = named((RULES / "alerts.yml").read_text("utf-8"))
    assert named_metrics <= exposed(), named_metrics - exposed()
    gauges_of_database = {name for name in metrics.DATABASE_METRICS if name.startswith("cograil_")}
    assert gauges_of_database <= shown, "what the database says is on the dashboard"


def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", str(file))
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_exposed_metrics_are_well_named() -> None:
    label_counts = {name: len(family.labels) for name, family in metrics.DATABASE_METRICS.items()}
    samples = [(name, "x" * (count > 0), "x" * (count > 1), 1.0) for name, count in label_counts.items()]
    text, _ = metrics.exposition(samples)
    promtool("check", "metrics", stdin=text.decode())
