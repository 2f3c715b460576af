"""The verification code of docs/how-to/callbacks.md is run, in every language whose runtime is on this machine."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.components import need

from cograil.delivery.signatures import signed_headers

PAGE = (Path(__file__).parents[2] / "docs/how-to/callbacks.md").read_text("utf-8")
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BODY = '{"big":9007199254740993,"text":"ü \u2028"}'.encode()


def block(language: str, number: int = 0) -> str:
    """Of the page's code in this language: first that of Standard Webhooks, then that of X-Signature-256."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return blocks[number]


def in_python(headers: dict[str, str], body: bytes, _: Path) -> bool:
    names: dict[str, Callable[..., bool]] = {}
    exec(block("python"), names)
    return names["is_genuine"](SECRET, headers, body)


def _run(command: list[str], folder: Path) -> bool:
    need(command[0])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() in ("true", "false"), done.stderr
    return done.stdout.strip() == "true"


def in_javascript(headers: dict[str, str], body: bytes, folder: Path) -> bool:
    call = f"isGenuine({json.dumps(SECRET)}, {json.dumps(headers)}, require('fs').readFileSync('body'))"
    (folder / "check.js").write_text(f"{block('javascript')}\nconsole.log({call});")
    return _run(["node", "check.js"], folder)


def in_php(headers: dict[str, str], body: bytes, folder: Path) -> bool:
    headers_code = f"json_decode({json.dumps(json.dumps(headers))}, true)"
    call = f"is_genuine({json.dumps(SECRET)}, {headers_code}, file_get_contents('body'))"
    (folder / "check.php").write_text(f"{block('php')}\necho {call} ? 'true' : 'false';")
    return _run(["php", "check.php"], folder)


def in_go(headers: dict[str, str], body: bytes, folder: Path) -> bool:
    pairs = "\n".join(f"h.Set({json.dumps(name)}, {json.dumps(value)})" for name, value in headers.items())
    code = block("go").replace("package hooks", "package main").replace('"math"', '"fmt"\n\t"math"\n\t"os"')
    call = f"fmt.Println(IsGenuine({json.dumps(SECRET)}, h, body, 300*time.Second))"
    main = f'func main() {{\nh := http.Header{{}}\n{pairs}\nbody, _ := os.ReadFile("body")\n{call}\n}}'
    (folder / "main.go").write_text(f"{code}\n{main}\n")
    return _run(["go", "run", "main.go"], folder)


def signed_in_python(signature: str, body: bytes, _: Path) -> bool:
    names: dict[str, Callable[..., bool]] = {}
    exec(block("python", 1), names)
    return names["is_signed"](SECRET, signature, body)


def signed_in_javascript(signature: str, body: bytes, folder: Path) -> bool:
    call = f"isSigned({json.dumps(SECRET)}, {json.dumps(signature)}, require('fs').readFileSync('body'))"
    (folder / "check.js").write_text(f"{block('javascript', 1)}\nconsole.log({call});")
    return _run(["node", "check.js"], folder)


def signed_in_php(signature: str, body: bytes, folder: Path) -> bool:
    call = f"is_signed({json.dumps(SECRET)}, {json.dumps(signature)}, file_get_contents('body'))"
    (folder / "check.php").write_text(f"{block('php', 1)}\necho {call} ? 'true' : 'false';")
    return _run(["php", "check.php"], folder)


def signed_in_go(signature: str, body: bytes, folder: Path) -> bool:
    code = (
        block("go", 1)
        .replace("package hooks", "package main")
        .replace('"encoding/hex"', '"encoding/hex"\n\t"fmt"\n\t"os"')
    )
    call = f"fmt.Println(IsSigned({json.dumps(SECRET)}, {json.dumps(signature)}, body))"
    (folder / "main.go").write_text(f'{code}\nfunc main() {{\nbody, _ := os.ReadFile("body")\n{call}\n}}\n')
    return _run(["go", "run", "main.go"], folder)


SIGNED = {
    "python": signed_in_python,
    "node": signed_in_javascript,
    "php": signed_in_php,
    "go": signed_in_go,
}
READ = ("webhook-id", "webhook-timestamp", "webhook-signature")
LANGUAGES = {"python": in_python, "node": in_javascript, "php": in_php, "go": in_go}


@pytest.mark.parametrize("runtime", LANGUAGES)
def test_the_example_knows_what_is_genuine_and_what_is_not(runtime: str, tmp_path: Path) -> None:
    def is_genuine(headers: dict[str, str], body: bytes = BODY) -> bool:
        (tmp_path / "body").write_bytes(body)
        return LANGUAGES[runtime](headers, body, tmp_path)

    headers = signed_headers("cloudevents", SECRET, "id-1", int(time.time()), BODY)
    assert is_genuine(headers)
    assert is_genuine(headers | {"webhook-signature": f"v1,AAAA {headers['webhook-signature']}"})
    assert not is_genuine(headers, BODY + b" ")
    assert not is_genuine(headers | {"webhook-id": "id-2"})
    assert not is_genuine(signed_headers("cloudevents", SECRET, "id-1", int(time.time()) - 3600, BODY))
    assert not is_genuine({})
    for odd in ({"webhook-timestamp": "x"}, {"webhook-timestamp": "9" * 5000}, {"webhook-signature": "v1,é"}):
        assert not is_genuine(headers | odd), odd
    for name in headers:
        assert is_genuine({key: value for key, value in headers.items() if key != name}) is (name not in READ)


@pytest.mark.parametrize("runtime", SIGNED)
def test_the_other_signature_is_checked_as_well(runtime: str, tmp_path: Path) -> None:
    def is_signed(signature: str, body: bytes = BODY) -> bool:
        (tmp_path / "body").write_bytes(body)
        return SIGNED[runtime](signature, body, tmp_path)

    headers = signed_headers("orchestrator", SECRET, "id-1", int(time.time()), BODY)
    signature = {name.lower(): value for name, value in headers.items()}["x-signature-256"]
    assert is_signed(signature)
    assert not is_signed(signature, BODY + b" ")
    assert not is_signed("sha256=" + "0" * 64)


def test_the_page_shows_all_four() -> None:
    assert all(block(language) for language in ("python", "javascript", "go", "php"))
