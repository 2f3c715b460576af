"""Traces without a collector: what is read, what is off, and what stays the program's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cograil import tracing

GOOD = f"00-{'a' * 32}-{'b' * 16}-01"
JOB = "019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e"


@pytest.mark.parametrize(
    ("header", "read"),
    [
        (GOOD, GOOD),
        (f"00-{'a' * 32}-{'b' * 16}-ff", f"00-{'a' * 32}-{'b' * 16}-03"),
        (f"cc-{'a' * 32}-{'b' * 16}-01", GOOD),
        (f"cc-{'a' * 32}-{'b' * 16}-01-what-comes-later", GOOD),
        (f"{GOOD}-more", None),
        (f"ff-{'a' * 32}-{'b' * 16}-01", None),
        (f"00-{'0' * 32}-{'b' * 16}-01", None),
        (f"00-{'a' * 32}-{'0' * 16}-01", None),
        (GOOD.upper(), None),
        (GOOD + "\n", None),
        ("", None),
        (None, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_has_it(header: str | None, read: str | None) -> None:
    assert tracing.parse_traceparent(header) == read


@pytest.mark.parametrize(
    ("variables", "is_wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, False),
    ],
)
def test_only_the_standard_variables_switch_it_on(variables: dict[str, str], is_wanted: bool) -> None:
    assert tracing.is_wanted(variables) is is_wanted


def test_when_it_is_off_a_trace_is_handed_on_as_it_came() -> None:
    assert not tracing.is_on()
    assert tracing.new_job_traceparent(JOB, GOOD) == tracing.job_traceparent(JOB, GOOD) == GOOD
    assert tracing.new_job_traceparent(JOB, None) is None
    assert tracing.start_attempt(JOB, "a", 1, GOOD, "echo", None) is None
    with tracing.request_span("GET", "example.org", GOOD) as span:
        assert span.trace_parent == GOOD


OWN = """
import os, sys
os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
import cograil, cograil.client, cograil.worker.worker_loop
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "imported for nothing"
from cograil import tracing
tracing.configure("test")
assert tracing.is_on()
from opentelemetry import trace
assert type(trace.get_tracer_provider()).__name__ == "ProxyTracerProvider", "that of the program"
first = tracing.new_job_traceparent("{job}", None)
assert first == tracing.job_traceparent("{job}", None), "the same from the id alone"
assert "{job}".replace("-", "") not in first, "who sees the trace does not see the job"
begun = tracing.start_attempt("{job}", "a", 2, None, "echo", ("flow", 1))
with begun.inside():
    from cograil.client.trace_context import current_parent
    assert current_parent() == begun.trace_parent
begun.end("completed")
import time
at = time.monotonic()
tracing.shutdown()
assert time.monotonic() - at < tracing.CLOSING_SECONDS + 1, "nobody listens there"
assert not tracing.is_on()
"""


def test_the_provider_is_ours_alone_and_a_dead_collector_does_not_hold_us_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWN.replace("{job}", JOB)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


WITHOUT = """
import os, sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
from cograil import logs, tracing
logs.configure("warning", "json")
tracing.configure("test")
assert not tracing.is_on()
"""


@pytest.mark.parametrize(
    ("variables", "warning"),
    [
        ({}, "pip install 'cograil[tracing]'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "only the protocol http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be otlp, console or none"),
    ],
)
def test_a_failing_exporter_warns_once_and_stops_nothing(variables: dict[str, str], warning: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert warning in done.stderr
