"""Writes the client that waits from the one that awaits: the same code without awaiting."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "src" / "cograil" / "client"
HEAD = '"""{title}\n\nWritten by `make docs` from {source}; do not edit.\n"""\n'
WORDS = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    r"AsyncGenerator\[(\w+), None\]": r"Generator[\1, None, None]",
    "AsyncGenerator": "Generator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aread": "read",
    "aiter_bytes": "iter_bytes",
    "from asyncio import sleep": "from time import sleep",
    "_async": "_sync",
}


def sources() -> dict[str, str]:
    """Which file is written from which."""
    parts = sorted(path.name for path in (FOLDER / "_async").glob("*.py") if path.name != "__init__.py")
    return {"sync_client.py": "async_client.py"} | {f"_sync/{name}": f"_async/{name}" for name in parts}


def synchronous(text: str, source: str) -> str:
    """The text of a module that awaits, as one that does not."""
    title = text.partition("\n")[0].strip('"').replace("asynchronous", "synchronous").split(". ")[0]
    body = text[text.index("from __future__") :]
    body = re.sub(r"\bawait ", "", body)
    body = re.sub(r"\basync (def|for|with)\b", r"\1", body)
    for word, other in WORDS.items():
        body = re.sub(rf"\b{word}(?!\w)", other, body)
    return HEAD.format(title=title.rstrip(".") + ".", source=source) + "\n" + body


def written(name: str) -> str:
    """A module as it should stand there, in the format of the house."""
    source = sources()[name]
    text = synchronous((FOLDER / source).read_text("utf-8"), source)
    return _formatted(text, FOLDER / name)


def _formatted(text: str, path: Path) -> str:
    """Imports are in another order here, and what need not await need not loop either."""
    sorting = ["check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", "I001,UP028"]
    for command in (sorting, ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    """Write them."""
    for name in sources():
        (FOLDER / name).write_text(written(name), "utf-8")


if __name__ == "__main__":
    main()
