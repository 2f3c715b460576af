"""What a callback may say: everything that is wrong with it has a code of its own."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cograil.errors import InvalidInput
from cograil.setting_sections import OutboundSettings
from cograil.verbs.callback_targets import check_callback, full_type

KEY = "whsec_" + base64.b64encode(b"k" * 24).decode()
STRICT = OutboundSettings()


def codes(callback: Any, policy: OutboundSettings = STRICT) -> set[str]:
    try:
        check_callback(callback, policy)
    except InvalidInput as error:
        return {problem.code for problem in error.problems}
    return set()


def of_url(url: str, policy: OutboundSettings = STRICT) -> set[str]:
    return codes({"url": url}, policy)


@pytest.mark.parametrize(
    "callback",
    [
        {"url": "https://a.example/hook?x=1"},
        {
            "url": "http://a.example:8080/",
            "secret": KEY,
            "events": ["job.completed"],
            "headers": {"X-A": "b"},
        },
        {"url": "https://a.example", "secret": "short", "style": "orchestrator"},
        {"url": "https://a.example", "secret": KEY.removeprefix("whsec_"), "events": [], "headers": None},
        {"url": "https://8.8.8.8/"},
    ],
)
def test_a_callback_that_is_right_is_taken(callback: Any) -> None:
    assert codes(callback) == set()


@pytest.mark.parametrize(
    "url", ["ftp://a.example", "file:///etc/passwd", "gopher://a.example", "javascript:alert(1)", "data:,x"]
)
def test_other_schemes_are_refused(url: str) -> None:
    assert of_url(url) == {"callback_scheme"}


def test_plain_http_is_refused_where_https_is_demanded() -> None:
    policy = OutboundSettings(require_https=True)
    assert of_url("http://a.example/", policy) == {"callback_scheme"}
    assert of_url("https://a.example/", policy) == set()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254"),
        *("100.64.0.1", "[fc00::1]", "[fe80::1]", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]"),
        *("[2002:7f00:1::]", "[::7f00:1]", "[fec0::1]"),
    ],
)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    assert of_url(f"http://{host}/") == {"callback_blocked_address"}
    allowed = OutboundSettings(allow_networks=("0.0.0.0/0", "::/0"))
    assert of_url(f"http://{host}/", allowed) == set()


@pytest.mark.parametrize(
    "host",
    [
        *("127.1", "0177.0.0.1", "2130706433", "0x7f000001", "169.254.43518", "0"),
        *("①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost", "bücher.example", "[fe80::1%25lo]"),
    ],
)
def test_hosts_that_could_be_read_in_two_ways_are_refused(host: str) -> None:
    assert of_url(f"http://{host}/") <= {"callback_invalid_host", "callback_invalid_url"} != set()
    assert of_url(f"http://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        *("http://good.example\\@bad.example/", "http://a.example/#@b", "http://a.example/\t", "http://a b/"),
        *("http://a.example/\n", "http://a.example/#x", "https://a.example/" + "x" * 2048, "http://[::1/"),
    ],
)
def test_urls_that_are_none_are_refused(url: str) -> None:
    assert of_url(url) == {"callback_invalid_url"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://good@169.254.169.254/", "callback_invalid_url"),
        ("http://@a.example/", "callback_invalid_url"),
        ("https://u:p@a.example/", "callback_userinfo"),
        ("https://:@a.example/", "callback_userinfo"),
    ],
)
def test_users_in_urls_are_refused(url: str, code: str) -> None:
    assert of_url(url) == {code}


@pytest.mark.parametrize("port", ["0", "99999", "22", "25", "6379", "5432", "11211", "x"])
def test_ports_of_other_services_are_refused(port: str) -> None:
    assert of_url(f"https://a.example:{port}/") == {"callback_port"}


@pytest.mark.parametrize(
    "headers",
    [
        *({"Host": "x"}, {"Content-Length": "1"}, {"webhook-id": "x"}, {"Ce-Type": "x"}, {"X": "a\r\nb: c"}),
        *({"X": "a\0"}, {"X": "ü"}, {"X Y": "z"}, {"": "z"}, {"X": 1}, {"X": "y" * 1025}, "x", ["x"]),
        *({f"X-{n}": "y" for n in range(21)}, {"X-Signature-256": "x"}, {"Transfer-Encoding": "chunked"}),
    ],
)
def test_headers_that_are_ours_or_no_headers_are_refused(headers: Any) -> None:
    assert codes({"url": "https://a.example", "headers": headers}) == {"callback_header"}


@pytest.mark.parametrize("secret", ["", "short", "whsec_####", "whsec_" + "A" * 20, 7, "x" * 41, "a" * 2000])
def test_secrets_that_are_weak_or_none_are_refused(secret: Any) -> None:
    assert codes({"url": "https://a.example", "secret": secret}) == {"callback_secret"}


@pytest.mark.parametrize(
    ("callback", "code"),
    [
        (None, "callback_invalid_url"),
        ("https://a.example", "callback_invalid_url"),
        ({"url": 7}, "callback_invalid_url"),
        ({"url": "https://a.example", "style": "xml"}, "callback_style"),
        ({"url": "https://a.example", "style": ["x"]}, "callback_style"),
        ({"url": "https://a.example", "events": "job.completed"}, "callback_event"),
        ({"url": "https://a.example", "events": ["x y"]}, "callback_event"),
        ({"url": "https://a.example", "uri": "x"}, "unknown_field"),
    ],
)
def test_a_callback_with_any_other_flaw_is_refused_with_its_code(callback: Any, code: str) -> None:
    assert codes(callback) == {code}


def test_types_have_short_names() -> None:
    assert {full_type(name) for name in ("job.failed", "job_failed", "cograil.job.failed")} == {
        "cograil.job.failed"
    }
    assert full_type("captures.sealed") == "captures.sealed"
