"""Requests for container jobs: what the documented API takes, and what it refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from cograil.apps.containers.request import read_request
from cograil.model.artifact_plan import make_plan
from cograil.model.container_spec import InvalidRequest

PLAIN: dict[str, Any] = {"id": "job-1", "image": "alpine:latest"}
VIDEO: dict[str, Any] = {
    "id": "video-transcode-001",
    "meta": {"userId": "user-123", "projectId": "proj-456"},
    "image": "ffmpeg:latest",
    "command": "ffmpeg -i /workspace/input.mp4 /workspace/output.mp4",
    "cpu": 4,
    "memory": 4096,
    "timeoutSeconds": 3600,
    "artifacts": [
        {"id": "source-video", "type": "download", "in": "https://storage.example.com/x", "out": "input.mp4"},
        {
            "id": "transcoded-video",
            "type": "upload",
            "in": "output.mp4",
            "out": "https://storage.example.com/upload/output.mp4?signature=x",
            "depends": "job",
        },
    ],
    "callback": {
        "url": "https://api.example.com/webhooks/jobs",
        "key": "whsec_abc123",
        "events": ["orchestrator.job.exit", "orchestrator.job.artifact"],
    },
}  # fmt: skip


def of(kind: str, name: str = "a", depends: str | None = None, **more: Any) -> dict[str, Any]:
    artifact = {
        "download": {"in": "https://x.example/y", "out": "y"},
        "write": {"in": "text", "out": "y"},
        "unarchive": {"in": "y.tar.gz", "out": "src"},
        "upload": {"in": "y", "out": "https://x.example/y"},
        "read": {"in": "y"},
        "archive": {"in": "y", "out": "y.tar.gz", "format": "tar.gz"},
        "list": {"in": "."},
    }[kind]
    return {"id": name, "type": kind, **artifact, **({"depends": depends} if depends else {}), **more}


def test_the_example_of_the_guide_is_taken() -> None:
    request = read_request(VIDEO)
    plan = make_plan(request.artifacts)
    assert (request.cpus, request.memory_mb, request.seconds) == (4.0, 4096, 3600)
    assert [artifact.id for artifact in plan.before] == ["source-video"]
    assert [artifact.id for artifact in plan.after] == ["transcoded-video"]


def test_missing_fields_have_their_defaults() -> None:
    request = read_request(PLAIN | {"cpu": 0, "memory": 0, "timeoutSeconds": -1})
    assert (request.cpus, request.memory_mb, request.seconds) == (1.0, 512, 1800)
    assert (request.workspace, request.command, request.callback) == ("/workspace", "", None)


def test_variables_may_have_any_name_that_programs_can_read() -> None:
    variables = {"spring.datasource.url": "x", "A-B": "y=z", "ProgramFiles(x86)": ""}
    assert read_request(PLAIN | {"environment": variables}).environment == variables


def test_null_means_what_saying_nothing_means() -> None:
    """As clients in Go write what is empty, and their server read it."""
    optional = ("command", "cpu", "memory", "environment", "timeoutSeconds", "workspace", "meta", "artifacts")
    nothing = dict.fromkeys((*optional, "callback"))
    assert read_request(PLAIN | nothing) == read_request(PLAIN)
    callback = {"url": "https://x.example", "key": None, "events": None}
    assert read_request(PLAIN | {"callback": callback}).callback.events == []  # type: ignore[union-attr]
    artifacts = [
        of("unarchive", depends=None) | {"subdir": "", "depends": ""},
        of("list", "b", excludes=None),
    ]
    unpacked, listed = read_request(PLAIN | {"artifacts": artifacts}).artifacts
    assert (unpacked.depends, unpacked.subdir, listed.excludes) == (None, None, [])  # type: ignore[union-attr]
    with pytest.raises(InvalidRequest, match="image is required"):
        read_request(PLAIN | {"image": None})


@pytest.mark.parametrize("kind", ["download", "write", "unarchive", "upload", "read", "archive", "list"])
def test_every_kind_of_artifact_is_taken(kind: str) -> None:
    (artifact,) = read_request(PLAIN | {"artifacts": [of(kind)]}).artifacts
    assert artifact.type == kind


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"id": "-x"}, "id"),
        ({"id": "x" * 129}, "id"),
        ({"id": "x\n"}, "id"),
        ({"id": 5}, "id"),
        ({"image": ""}, "image"),
        ({"image": "a b"}, "image"),
        ({"command": ["echo"]}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"cpu": 65}, "cpu"),
        ({"cpu": -1}, "cpu"),
        ({"cpu": "1"}, "cpu"),
        ({"cpu": float("nan")}, "cpu"),
        ({"memory": 65_537}, "memory"),
        ({"memory": 1.5}, "memory"),
        ({"timeoutSeconds": 86_401}, "timeoutSeconds"),
        ({"workspace": "work"}, "workspace"),
        ({"workspace": "/"}, "workspace"),
        ({"workspace": "/proc/x"}, "workspace"),
        ({"workspace": "/a/../etc"}, "workspace"),
        ({"environment": {"A=B": "x"}}, "environment"),
        ({"environment": {"": "x"}}, "environment"),
        ({"environment": {"A": 5}}, "environment.A"),
        ({"environment": {"A": "\0"}}, "environment"),
        ({"meta": {str(number): "x" for number in range(33)}}, "meta"),
        ({"meta": {"x": "y" * 257}}, "meta.x"),
        ({"privileged": True}, "unknown field privileged"),
        ({"callback": {"url": "ftp://x"}}, "callback.url"),
        ({"callback": {"url": "https:///x"}}, "callback.url"),
        ({"callback": {"url": "https://x", "secret": "x"}}, "unknown field callback.secret"),
        ({"callback": {"url": "https://x", "events": ["x"] * 17}}, "callback.events"),
        ({"artifacts": [of("list", str(number)) for number in range(65)]}, "artifacts"),
        ({"artifacts": [of("write", out="../x")]}, "artifacts[0].out"),
        ({"artifacts": [of("write", out="/etc/passwd")]}, "artifacts[0].out"),
        ({"artifacts": [{"id": "a", "type": "write", "in": "", "out": "x"}]}, "artifacts[0].in"),
        ({"artifacts": [of("download", **{"in": "file:///etc/passwd"})]}, "artifacts[0].in"),
        ({"artifacts": [of("archive", format="zip")]}, "artifacts[0].format"),
        ({"artifacts": [of("read", "job")]}, "artifacts[0].id"),
        ({"artifacts": [of("read", mode="x")]}, "unknown field artifacts[0].mode"),
        ({"artifacts": [{"id": "a", "type": "clone"}]}, "artifacts[0]"),
        ({"artifacts": [{"type": "read", "in": "x"}]}, "artifacts[0].id is required"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_request(PLAIN | fields)
    assert named in str(caught.value)


PATHS = [
    ("download", "out"),
    ("write", "out"),
    ("unarchive", "in"),
    ("unarchive", "out"),
    ("unarchive", "subdir"),
    ("upload", "in"),
    ("read", "in"),
    ("archive", "in"),
    ("archive", "out"),
    ("list", "in"),
]
ROOTS = [("unarchive", "out"), ("archive", "in"), ("list", "in")]  # may be the workspace itself


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "..", "."),
        *("/etc/passwd", "C:\\x", "\\\\host\\x"),
        *("a\0b", "a\nb", "\x1b[2J", "\x7f"),
        *("x" * 256, "d/" * 513, "d/" * 33 + "x"),
        ".cograil-x",
    ],
)
@pytest.mark.parametrize(("kind", "field"), PATHS)
def test_no_path_of_any_artifact_leads_elsewhere(kind: str, field: str, path: str) -> None:
    body = PLAIN | {"artifacts": [of(kind, **{field: path})]}
    if path == "." and (kind, field) in ROOTS:
        read_request(body)
        return
    with pytest.raises(InvalidRequest) as caught:
        read_request(body)
    assert str(caught.value).startswith(f"artifacts[0].{field}: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("kind", "field"), PATHS)
@pytest.mark.parametrize("path", ["~/x", "%2e%2e%2fx", "%252e%252e%252fx", "x.part", "C:x"])
def test_a_plain_name_is_one_and_is_not_decoded(kind: str, field: str, path: str) -> None:
    (artifact,) = read_request(PLAIN | {"artifacts": [of(kind, **{field: path})]}).artifacts
    assert artifact.model_dump(by_alias=True)[field] == path


@pytest.mark.parametrize("field", ["sha256", "overwrite", "links"])
def test_unknown_fields_of_artifacts_are_refused_by_name(field: str) -> None:
    for kind in ("download", "write", "unarchive"):
        with pytest.raises(InvalidRequest, match=rf"unknown field artifacts\[0\]\.{field}$"):
            read_request(PLAIN | {"artifacts": [of(kind, **{field: "x"})]})


@pytest.mark.parametrize("missing", ["id", "image"])
def test_required_fields_are_named(missing: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{missing} is required"):
        read_request({name: value for name, value in PLAIN.items() if name != missing})


# -- the plan


def plan_of(*artifacts: dict[str, Any]) -> tuple[list[str], list[str]]:
    plan = make_plan(read_request(PLAIN | {"artifacts": list(artifacts)}).artifacts)
    return [artifact.id for artifact in plan.before], [artifact.id for artifact in plan.after]


def test_chains_run_in_their_order_before_or_after_the_job() -> None:
    assert plan_of(
        of("upload", "up", "pack"),
        of("unarchive", "unpack", "fetch"),
        of("archive", "pack", "job"),
        of("download", "fetch"),
        of("list", "names"),
    ) == (["fetch", "names", "unpack"], ["pack", "up"])


@pytest.mark.parametrize(
    ("artifacts", "message"),
    [
        ([of("read", "a", "b"), of("read", "b", "a")], "depends on itself"),
        ([of("read", "a", "a")], "depends on itself"),
        ([of("read", "c", "a"), of("read", "a", "b"), of("read", "b", "a")], "depends on itself"),
        ([of("read", "a", "nobody")], "'nobody', which does not exist"),
        ([of("read", "a"), of("list", "a")], "'a' is used twice"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(artifacts: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        plan_of(*artifacts)
