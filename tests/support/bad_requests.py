"""Bad input, row by row of the threats' matrix: what is sent, and what it must be answered with.

A row says what the matrix says. Where interfaces.md or the language of workflows says otherwise, which wins,
the name of the row says so after a dash.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Row(NamedTuple):
    """One input and what it must be answered with; the code is empty where the input is accepted."""

    name: str
    request: bytes
    status: int
    code: str = ""

    @property
    def id(self) -> str:
        """Of the matrix."""
        return self.name.split(" ")[0]


def post(body: bytes, *headers: str, path: str = "/api/v1/jobs", kind: str = "application/json") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    if kind:
        lines.append(f"Content-Type: {kind}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def job(**facts: object) -> bytes:
    return json.dumps({"workflow_id": "hello"} | facts).encode()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1")


def inputs(text: bytes) -> bytes:
    """A job of a workflow that takes anything, with this JSON as an input."""
    return b'{"workflow_id": "any", "input_params": {"x": ' + text + b"}}"


# fmt: off
JOBS = "/api/v1/jobs"
ID = "01a1e50c-7310-7248-8dd1-729d3582eaf2"
CHUNK = b"40000\r\n" + b" " * 0x40000 + b"\r\n"


def length(text: str) -> bytes:
    """A request with this Content-Length."""
    return post(b"").replace(b"Content-Length: 0", f"Content-Length: {text}".encode())


def method(name: str, path: str = JOBS) -> bytes:
    return get(path).replace(b"GET", name.encode(), 1)


def priority(text: str) -> bytes:
    return post(f'{{"workflow_id": "hello", "priority": {text}}}'.encode())


def claim(text: str) -> bytes:
    """Seconds to wait for a task."""
    return post(f'{{"worker_id": "w", "wait_seconds": {text}}}'.encode(), path="/api/v1/tasks/claim")


def flow(node: str) -> bytes:
    """A workflow whose only node says this."""
    source = f"workflow_id: w\nnodes: {{a: {{handler: echo, {node}}}}}"
    return post(json.dumps({"source": source}).encode(), path="/api/v1/workflows")


def scheduled(cron: str) -> bytes:
    body = {"name": "odd", "workflow_id": "hello", "cron": cron}
    return post(json.dumps(body).encode(), path="/api/v1/schedules")


def with_callback(url: str, **facts: object) -> bytes:
    return post(job(callback={"url": url} | facts))


HTTP = [
    Row("B01 a body that is too large by its own word", length("1048577"), 413, "payload_too_large"),
    Row("B02 a chunked body that is too large", method("POST")[:-2] + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK * 5 + b"0\r\n\r\n", 413, "payload_too_large"),
    Row("B03 two ways to tell the length", post(b"0\r\n\r\n", "Transfer-Encoding: chunked"), 400, "bad_framing"),
    Row("B03 the other way round", method("POST")[:-2] + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, "bad_framing"),
    Row("B03 another coding", method("POST")[:-2] + b"Transfer-Encoding: gzip\r\n\r\n", 400, "bad_framing"),
    Row("B03 chunks that are none", method("POST")[:-2] + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_framing"),
    Row("B04 two lengths", post(job(), "Content-Length: 5"), 400, "bad_framing"),
    *[Row(f"B04 a length of {text!r}", length(text), 400, "bad_framing") for text in ("-1", "+5", "0x5", "", "5 5", "9" * 30)],
    Row("B05 no host", get(JOBS).replace(b"Host: localhost\r\n", b""), 400, "bad_host"),
    Row("B05 two hosts", get(JOBS, "Host: other"), 400, "bad_host"),
    *[Row(f"B05 no host at {path}", get(path).replace(b"Host: localhost\r\n", b""), 400, "bad_host") for path in ("/livez", "/readyz", "/metrics")],
    Row("B05 two hosts at a probe", get("/livez", "Host: other"), 400, "bad_host"),
    Row("B06 too many headers", get(JOBS, *[f"X-{n}: 1" for n in range(200)]), 431, "headers_too_large"),
    Row("B06 far too many headers", get("/livez", *[f"X-{n}: 1" for n in range(5000)]), 431, "headers_too_large"),
    Row("B06 too long headers", get("/livez", *[f"X-{n}: {'x' * 8000}" for n in range(9)]), 431, "headers_too_large"),
    Row("B06 one header without an end", get("/livez")[:-2] + b"X: " + b"x" * 200_000, 431, "headers_too_large"),
    Row("B07 a long URL", get(f"{JOBS}?workflow_id=" + "a" * 8200), 414, "uri_too_long"),
    Row("B07 a very long URL", get("/livez?x=" + "a" * 90_000), 414, "uri_too_long"),
    Row("B07 a URL without an end", b"GET /" + b"a" * 200_000, 414, "uri_too_long"),
    Row("B08 text", post(job(), kind="text/plain"), 415, "unsupported_media_type"),
    Row("B08 no kind", post(job(), kind=""), 415, "unsupported_media_type"),
    Row("B08 another charset", post(job(), kind="application/json; charset=utf-16"), 415, "unsupported_media_type"),
    Row("B10 another answer wanted", get(JOBS, "Accept: application/xml"), 406, "not_acceptable"),
    *[Row(f"B11 {name}", method(name), 405, "method_not_allowed") for name in ("PATCH", "TRACE", "PUT", "FOO", "OPTIONS", "CONNECT", "get", "GETX")],
    *[Row(f"B11 {name} of a probe", method(name, "/livez"), 405, "method_not_allowed") for name in ("POST", "DELETE", "TRACE")],
    Row("B11 a method that the route does not take", method("DELETE"), 405, "method_not_allowed"),
    *[Row(f"B12 {path}", get(path), 404, "not_found") for path in ("/api/v1/nothing", "/api/v1//jobs", "/api/v1/jobs/../admin", "/api/v1/jobs/%2e%2e%2fadmin", "//", "*", "/", "/livez/", "/api/v1/jobs/", "/platform/status/a%0ab")],
    Row("B13 another expectation", post(job(), "Expect: 200-ok"), 417, "expectation_failed"),
    Row("B13 an upgrade that is passed over", get(JOBS, "Connection: Upgrade", "Upgrade: h2c"), 200),
    Row("B14 a compressed body", post(b"\x1f\x8b", "Content-Encoding: gzip"), 415, "unsupported_media_type"),
    Row("B15 a parameter twice", get(f"{JOBS}?limit=1&limit=2"), 422, "duplicate_parameter"),
    *[Row(f"B16 limit={text[:12]}", get(f"{JOBS}?limit={text}"), 422, "invalid_parameter") for text in ("-1", "0", "10001", "1e3", "%D9%A3", "9" * 5000, "", "1.5", "%00")],
    Row("B16 an unknown parameter", get(f"{JOBS}?limits=1"), 422, "unknown_parameter"),
    Row("B16 a status that is none", get(f"{JOBS}?status=done"), 422, "invalid_parameter"),
    Row("B16 parameters that cannot be read", get(f"{JOBS}?%ff"), 422, "invalid_parameter"),
    Row("B16a a forged cursor", get(f"{JOBS}?cursor=AAAA"), 422, "invalid_cursor"),
    *[Row(f"B03 no request at all: {text!r}", text + b"\r\n\r\n", 400, "malformed_request") for text in (b"\x16\x03\x01\x02", b"GET /a b HTTP/1.1", b"GET / HTTP/9.9", b"GET / HTTP/1.1\r\nHo st: x", b"GET / HTTP/1.1\r\nX: a\x00b", b"GET /\xff HTTP/1.1")],
]
JSON_ROWS = [
    Row("B17 nothing", post(b""), 400, "malformed_json"),
    *[Row(f"B17 {text.decode()}", post(text), 422, "invalid_type") for text in (b"null", b"[]", b'"x"', b"1", b"true")],
    *[Row(f"B18 {text[:20].decode()}", post(text), 400, "malformed_json") for text in (b'{"a":', b"{} x", b"{'a': 1}", b'{"a": 1,}', b"/* */{}", b"{a: 1}", b"\x01")],
    Row("B19 a byte order mark", post(b"\xef\xbb\xbf" + job()), 400, "invalid_encoding"),
    Row("B19 UTF-16", post(job().decode().encode("utf-16-le")), 400, "invalid_encoding"),
    Row("B19 Latin-1", post(inputs(b'"\xe9"')), 400, "invalid_encoding"),
    Row("B20 a key twice", post(b'{"workflow_id": "hello", "workflow_id": "any"}'), 400, "duplicate_key"),
    Row("B20 a key twice deep inside", post(inputs(b'{"a": [{"b": 1, "b": 2}]}')), 400, "duplicate_key"),
    *[Row(f"B21 {text.decode()}", post(inputs(text)), 400, "invalid_number") for text in (b"NaN", b"Infinity", b"-Infinity")],
    *[Row(f"B22 {text.decode()}", post(inputs(text)), 400, "invalid_number") for text in (b"1e400", b"-1e400")],
    Row("B23 beyond 64 bits", post(inputs(b"9223372036854775808")), 422, "out_of_range"),
    Row("B23 400 digits", post(inputs(b"1" * 400)), 422, "out_of_range"),
    Row("B23 5,000 digits", post(inputs(b"1" * 5000)), 400, "invalid_number"),
    *[Row(f"B24 priority {text}", priority(text), 422, "invalid_type") for text in ("-0", "-0.0", "1.0", "null", "[]")],
    *[Row(f"B25 priority {text}", priority(text), 422, "invalid_type") for text in ("true", '"5"')],
    Row("B25 a number for a boolean", post(b'{"preview": 1}', path=f"{JOBS}/{ID}/retry"), 422, "invalid_type"),
    Row("B26 33 levels", post(inputs(b"[" * 31 + b"]" * 31)), 400, "too_deep"),
    Row("B26 far too deep", post(b"[" * 100_000), 400, "too_deep"),
    Row("B27 too many keys", post(inputs(json.dumps({str(n): 0 for n in range(10_001)}).encode())), 422, "too_large"),
    Row("B27 too long a list", post(inputs(json.dumps([0] * 10_001).encode())), 422, "too_large"),
    Row("B27 too long a text", post(inputs(json.dumps("x" * (256 * 1024 + 1)).encode())), 422, "too_large"),
    Row("B28 a lone surrogate", post(inputs(b'"\\ud800"')), 400, "invalid_unicode"),
    Row("B29 NUL", post(inputs(b'"\\u0000"')), 400, "invalid_unicode"),
    Row("B29 NUL in a key", post(inputs(b'{"\\u0000": 1}')), 400, "invalid_unicode"),
    Row("B30 an unknown field", post(job(odd=1)), 422, "unknown_field"),
    Row("B31 odd names are data", post(inputs(b'{"__proto__": 1, "constructor": 2, "__class__": 3}')), 202),
    Row("B33 thirty digits", post(inputs(b"0.100000000000000005551115123125")), 202),
    Row("B36 all sorts of characters", post(inputs('"\u202e\u200b\U0001f600 ｆｕｌｌ"'.encode())), 202),
]
NAMES = [
    *[Row(f"B37 workflow {text[:20]!r}", post(job(workflow_id=text)), 422, "invalid_name") for text in ("", "../x", "a/b", "-rf", ".", " ", "ａ", "'; drop table jobs;--", "a" * 65, "a\nb")],
    Row("B37 NUL in a name - refused with all NULs", post(job(workflow_id="a\0b")), 400, "invalid_unicode"),
    Row("B37 capitals - the language of workflows has them", post(job(workflow_id="Hello")), 404, "workflow_not_found"),
    *[Row(f"B38 id {text[:30]!r}", get(f"{JOBS}/{text}"), 404, code) for text, code in (("x", "not_found"), ("%00", "not_found"), ("a%0d%0aSet-Cookie:x", "not_found"), ("9" * 4000, "not_found"), ("..", "not_found"), ("null", "not_found"), ("%FF", "not_found"))],
    Row("B39 an unknown id", get(f"{JOBS}/{ID}"), 404, "not_found"),
    *[Row(f"B41 id {text}", get(f"{JOBS}/{text}"), 404, "not_found") for text in (ID.upper(), f"%7B{ID}%7D", f"urn:uuid:{ID}", ID.replace("-", ""))],
    Row("B42 65 labels", post(job(labels={str(n): "x" for n in range(65)})), 422, "invalid_label"),
    *[Row(f"B42 the key {text[:9]!r}", post(job(labels={text: "x"})), 422, "invalid_label") for text in ("x" * 64, "", "a\nb", "\x1b[2J", "\x7f", "a\u2028b")],
    *[Row(f"B42 the value {text[:9]!r}", post(job(labels={"x": text})), 422, "invalid_label") for text in ("x" * 256, "a\nb", "\x85")],
    Row("B42 a number as value", post(job(labels={"x": 1})), 422, "invalid_type"),
    Row("B42 as many as may be", post(job(labels={"k" * 61 + f"{n:02}": "é" * 255 for n in range(64)})), 202),
    *[Row(f"B43 priority {text}", priority(text), 422, "out_of_range") for text in ("-1", "11", "1001", "9223372036854775807")],
    Row("B43 priority 5.5", priority("5.5"), 422, "out_of_range"),
    *[Row(f"B44 a wait of {text}", claim(text), 422, code) for text, code in (("-1", "out_of_range"), ("1e300", "out_of_range"), ('"1h30"', "invalid_value"))],
    Row("B44 a wait of NaN", claim("NaN"), 400, "invalid_number"),
    *[Row(f"B44 a timeout of {text}", flow(f"timeout_seconds: {text}"), 422, "invalid_value") for text in ("0", "-1", "1e300")],
    *[Row(f"B45 not_before {text}", post(job(not_before=text)), 422, "invalid_timestamp") for text in ("0000-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "9999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2024-02-30T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00", "", "soon", 5, True)],
    Row("B45 the past is now", post(job(not_before="2020-01-01T00:00:00Z")), 202),
    *[Row(f"B46 cron {text[:20]!r}", scheduled(text), 422, "invalid_schedule") for text in ("* * * * * *", "60 * * * *", "@reboot", "* " * 5000, "", "* * * *", "0 0 31 2 *", "*/0 * * * *", "\u0663 * * * *")],
    *[Row(f"B47 max_attempts {text}", flow(f"retry: {{max_attempts: {text}}}"), 422, "invalid_value") for text in ("0", "-1", "1001")],
    *[Row(f"B48 {text}", post(inputs(json.dumps(text).encode())), 202) for text in ("'; drop table cograil.jobs;--", "%s", "{}", "{{7*7}}", "<script>alert(1)</script>", "a\nb\r\n\x1b[2J\u2028")],
    Row("B50 a request id that would break a log", get(JOBS, "X-Request-ID: a{}b"), 200),
    Row("B51 no key", post(job()), 202),
    *[Row(f"B52 the key {text[:9]!r}", post(job(), f"Idempotency-Key: {text}"), 400, "invalid_idempotency_key") for text in ("", "x" * 129, "x" * 257, "é", "a b")],
    *[Row(f"B52 the key {text[:9]!r} in the body", post(job(idempotency_key=text)), 400, "invalid_idempotency_key") for text in ("", " ", "a b", "é", "x" * 129, "a\x01b")],
    Row("B52 two keys", post(job(), "Idempotency-Key: a", "Idempotency-Key: a"), 400, "invalid_idempotency_key"),
    Row("B52 a key with a control character - it is not a header", post(job(), "Idempotency-Key: a\x01b"), 400, "malformed_request"),
    Row("B144 a key in the URL", get(f"{JOBS}?key=cog_a_b"), 422, "unknown_parameter"),
    *[Row(f"B153 {path}", get(path), 404, "not_found") for path in ("/ui/%2e%2e/x", "/ui/../x", "/ui/..%2fx", "/ui/static/%2e%2e/%2e%2e/app.py", "/ui//evil.example")],
    *[Row(f"B148 a tenant {where}", request, 422, "unknown_field") for where, request in (("in the body", post(job(tenant_id="acme"))), ("in the URL", get(f"{JOBS}?tenant=acme")), ("in the URL of a route without parameters", get(f"{JOBS}/{ID}?tenant_id=acme")), ("in a header", get(JOBS, "X-Tenant-Id: acme")), ("in a header of a submit", post(job(), "X-Tenant: acme")))],
]
CALLBACKS = [
    *[Row(f"B125 {url}", with_callback(url), 422, "callback_scheme") for url in ("ftp://a.example", "file:///etc/passwd", "gopher://a.example", "javascript:alert(1)", "data:,x")],
    *[Row(f"B126 {host}", with_callback(f"http://{host}/"), 422, "callback_blocked_address") for host in ("127.0.0.1", "[::1]", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "[fc00::1]", "[fe80::1]")],
    *[Row(f"B127 {host}", with_callback(f"http://{host}/"), 422, "callback_invalid_host") for host in ("127.1", "0177.0.0.1", "2130706433", "0x7f000001", "169.254.43518", "0")],
    *[Row(f"B128 {host}", with_callback(f"http://{host}/"), 422, "callback_blocked_address") for host in ("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[::7f00:1]", "[fec0::1]")],
    Row("B128 a zone", with_callback("http://[fe80::1%25lo]/"), 422, "callback_invalid_host"),
    *[Row(f"B128 {host}", with_callback(f"http://{host}/"), 422, "callback_invalid_host") for host in ("[2606:4700::1111].a.example", "127.0.0.1[2606:4700::1111]", "[v1.x]")],
    *[Row(f"B129 {host}", with_callback(f"http://{host}/"), 422, "callback_invalid_host") for host in ("①②⑦.⓪.⓪.①", "127。0。0。1", "ⓛocalhost", "bücher.example", "\u212a.example")],
    *[Row(f"B130 {url!r}", with_callback(url), 422, "callback_invalid_url") for url in ("http://good@169.254.169.254/", "http://good.example\\@bad.example/", "http://a.example/#@b", "http://a.example/\t", "http://a.example/\n")],
    *[Row(f"B131 {url}", with_callback(url), 422, "callback_userinfo") for url in ("http://u:p@169.254.169.254/", "https://u:p@a.example/", "https://u:@a.example/")],
    *[Row(f"B132 port {port}", with_callback(f"https://a.example:{port}/"), 422, "callback_port") for port in ("0", "99999", "22", "25", "6379")],
    *[Row(f"B134 {url[:30]}", with_callback(url), 422, "callback_invalid_url") for url in ("https://a.example/" + "x" * 2048, "https://a.example/#x")],
    *[Row(f"B135 {headers!r:.30}", with_callback("https://a.example/", headers=headers), 422, "callback_header") for headers in ({"Host": "x"}, {"Content-Length": "1"}, {"webhook-id": "x"}, {"Ce-Type": "x"}, {"X": "a\r\nb: c"}, {"X": "ü"}, {"X Y": "z"}, {f"X-{n}": "y" for n in range(21)})],
    *[Row(f"B136 {secret!r}", with_callback("https://a.example/", secret=secret), 422, "callback_secret") for secret in ("short", "whsec_####", "whsec_" + "A" * 20, 7)],
]
# fmt: on
CORPUS = [HTTP, JSON_ROWS, NAMES, CALLBACKS]
