"""Archives that would do harm, row by row of the threats' matrix: each name begins with the id of its row.

Links and devices are skipped and told, as the documented API has it, which wins over the matrix.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os

from tests.support.tar_entries import BLOCK, entry, header, pax, pax_record, tar_gz


def link(name: bytes, to: bytes) -> bytes:
    return entry(name, kind=b"2", link=to)


def hard(name: bytes, to: bytes) -> bytes:
    return entry(name, kind=b"1", link=to)


def long_way_out(*, length: int = 247) -> bytes:
    """Links to directories whose true path is longer than the kernel takes, so that none is resolved."""
    name, above, entries = b"d" * length, b"", []
    for letter in b"abcdefghijklmnop":
        entries += [pax(path=above + name + b"/"), entry(b"", kind=b"5")]
        entries += [pax(path=above + bytes([letter]), linkpath=name), link(b"", b"")]
        above += name + b"/"
    way = b"/".join(bytes([letter]) for letter in b"abcdefghijklmnop") + b"/" + b"l" * 254
    entries += [pax(path=way, linkpath=b"../" * 16), link(b"", b"")]
    entries += [pax(path=b"escape", linkpath=way + b"/../../.."), link(b"", b"")]
    return tar_gz(*entries, hard(b"flag", b"escape/secret"), entry(b"flag", b"overwritten"))


# What is refused, and with which code.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "B105 a step up": (tar_gz(entry(b"../secret", b"x")), "unsafe_path"),
    "B105 a step up inside": (tar_gz(entry(b"a/../../secret", b"x")), "unsafe_path"),
    "B105 absolute": (tar_gz(entry(b"/tmp/x", b"x")), "unsafe_path"),
    "B105 absolute by pax": (tar_gz(pax(path=b"/tmp/x"), entry(b"fine", b"x")), "unsafe_path"),
    "B105 a step up by pax": (tar_gz(pax(path=b"../x"), entry(b"fine", b"x")), "unsafe_path"),
    "B105 a step up by a long name": (tar_gz(entry(b"L", b"../x\0", b"L"), entry(b"x", b"x")), "unsafe_path"),
    "B105 a step up by prefix": (tar_gz(entry(b"x", b"x", prefix=b"..")), "unsafe_path"),
    "B121 backslash": (tar_gz(entry(b"..\\x", b"x")), "unsafe_path"),
    "B121 newline": (tar_gz(entry(b"a\nb", b"x")), "unsafe_name"),
    "B121 no UTF-8": (tar_gz(entry(b"\xff\xfe", b"x")), "unsafe_name"),
    "B121 NUL by pax": (tar_gz(pax(path=b"a\0b"), entry(b"fine", b"x")), "unsafe_name"),
    "B97 a name of ours": (tar_gz(entry(b".cograil-x", b"x")), "reserved_name"),
    "B95 overlong UTF-8": (tar_gz(entry(b"\xc0\xae\xc0\xae/x", b"x")), "unsafe_name"),
    "B96 another case": (tar_gz(entry(b"d/Read", b"1"), entry(b"d/READ", b"2")), "name_collision"),
    "B96 a directory of another case": (tar_gz(entry(b"d/x", b"1"), entry(b"D/y", b"2")), "name_collision"),
    "B96 other accents": (
        tar_gz(entry("\u00e9".encode(), b"1"), entry("e\u0301".encode(), b"2")), "name_collision",
    ),
    "B94 a long name": (tar_gz(pax(path=b"x" * 300), entry(b"fine", b"x")), "unsafe_path"),
    "B94 a deep name": (tar_gz(pax(path=b"d/" * 40 + b"x"), entry(b"fine", b"x")), "unsafe_path"),
    "B121 a file with a slash": (tar_gz(pax(path=b"x/"), entry(b"fine", b"x")), "unsafe_path"),
    "B120 twice": (tar_gz(entry(b"x", b"1"), entry(b"x", b"2")), "unsafe_entry"),
    "B120 file then directory": (tar_gz(entry(b"x", b"1"), entry(b"x/y", b"2")), "unsafe_entry"),
    "B120 directory then file": (tar_gz(entry(b"x/y", b"1"), entry(b"x", b"2")), "unsafe_entry"),
    "B109 contiguous": (tar_gz(entry(b"x", b"1", b"7")), "unsafe_entry"),
    "B108 CVE-2025-4517": (long_way_out(), "unsafe_path"),
    "B109 an unknown type": (tar_gz(entry(b"x", b"1", b"Z")), "unsafe_entry"),
    "B111 sparse of GNU": (tar_gz(entry(b"x", b"1", b"S")), "unsafe_entry"),
    "B111 sparse by pax": (
        tar_gz(entry(b"p", pax_record(b"GNU.sparse.size", b"107374182400"), b"x"), entry(b"x", b"1")),
        "unsafe_entry",
    ),
    "B112 a bomb": (tar_gz(entry(b"zeros", bytes(8 * 1024**2))), "archive_bomb"),
    "B112 next to nothing in very many gzips": (gzip.compress(b"") * 20_000, "archive_bomb"),
    "B113 too many": (tar_gz(*[entry(b"%d" % number) for number in range(60)]), "archive_too_many_entries"),
    "B113 too many directories without an entry": (
        tar_gz(*[entry(b"%d/" % number * 20 + b"x") for number in range(3)]), "archive_too_many_entries",
    ),
    "B113 too many extensions": (tar_gz(pax(comment=b"x") * 201), "archive_too_many_entries"),
    "B114 a long pax header": (tar_gz(header(b"p", 600 * 1024**2, b"x")), "archive_bad_header"),
    "B114 a long long name": (tar_gz(header(b"L", 300 * 1024**2, b"L")), "archive_bad_header"),
    "B114 a long global header": (tar_gz(header(b"g", 600 * 1024**2, b"g")), "archive_bad_header"),
    "B114 a long long link": (tar_gz(header(b"K", 300 * 1024**2, b"K")), "archive_bad_header"),
    "B115 a negative size": (tar_gz(header(b"x", size_field=b"\xff" * 12)), "archive_bad_header"),
    "B115 a size of 2**63": (tar_gz(header(b"x", size_field=b"\x80" + b"\x7f" * 11)), "archive_bad_header"),
    "B115 a size by pax": (tar_gz(pax(size=b"-1"), entry(b"x", b"1")), "archive_bad_header"),
    "B115 a size of 2**63 by pax": (tar_gz(pax(size=b"%d" % 2**63), entry(b"x", b"1")), "archive_bad_header"),
    "B116 CVE-2024-6232": (tar_gz(entry(b"p", b"1" * 65_536, b"x"), entry(b"x", b"1")), "archive_bad_header"),
    "B116 the same in a global header": (tar_gz(entry(b"g", b"1 " * 32_768, b"g")), "archive_bad_header"),
    "B116 pax without a length": (tar_gz(entry(b"p", b"path=x\n", b"x"), entry(b"x")), "archive_bad_header"),
    "B116 pax too short": (tar_gz(entry(b"p", b"99 path=x\n", b"x"), entry(b"x")), "archive_bad_header"),
    "B116 pax of length 0": (tar_gz(entry(b"p", b"0 path=x\n", b"x"), entry(b"x")), "archive_bad_header"),
    "B117 a bad checksum": (tar_gz(b"y" + entry(b"x", b"1")[1:]), "archive_bad_header"),
    "B117 no octal": (tar_gz(header(b"x", size_field=b"0000000009x\0")), "archive_bad_header"),
    "B117 a directory with content": (tar_gz(entry(b"d", b"content", b"5")), "archive_bad_header"),
    "B118 cut in its gzip": (tar_gz(entry(b"x", os.urandom(4000)))[:-500], "archive_truncated"),
    "B118 cut in an entry": (gzip.compress(header(b"x", 5000) + b"x" * 512), "archive_truncated"),
    "B118 cut in a header": (gzip.compress(entry(b"x", b"1") + b"x" * 100), "archive_truncated"),
    "B118 garbage behind it": (tar_gz(entry(b"x", b"1")) + b"garbage", "archive_corrupt"),
    "B118 a wrong checksum of gzip": (tar_gz(entry(b"x", b"1"))[:-8] + bytes(8), "archive_corrupt"),
    "B119 a zip": (b"PK\x03\x04" + bytes(100), "archive_format"),
    "B119 an xz": (lzma.compress(entry(b"x", b"1") + bytes(2 * BLOCK)), "archive_format"),
    "B119 a bzip2": (bz2.compress(entry(b"x", b"1") + bytes(2 * BLOCK)), "archive_format"),
    "B119 a zstd": (b"\x28\xb5\x2f\xfd" + bytes(100), "archive_format"),
    "B119 plain text": (b"hello", "archive_format"),
    "B119 nothing": (b"", "archive_format"),
    "B119 a tar without gzip": (entry(b"x", b"1") + bytes(1024), "archive_format"),
}  # fmt: skip

# What comes out without its links and devices: the names that are told, and the files that are there.
SKIPPED: dict[str, tuple[bytes, list[str], dict[str, bytes]]] = {
    "B106 a file through a link": (
        tar_gz(link(b"s", b"/etc"), entry(b"s/through", b"it")), ["s"], {"s/through": b"it"},
    ),
    "B106 a file in the place of a link": (
        tar_gz(link(b"s", b"../../secret"), entry(b"s", b"it")), ["s"], {"s": b"it"},
    ),
    "B106 a chain of links": (
        tar_gz(link(b"a", b".."), link(b"b", b"a/.."), link(b"c", b"b/secret"), entry(b"c", b"it")),
        ["a", "b", "c"],
        {"c": b"it"},
    ),
    "B106 links to themselves": (
        tar_gz(link(b"me", b"me"), link(b"you", b"they"), link(b"they", b"you"), entry(b"me/x", b"it")),
        ["me", "you", "they"],
        {"me/x": b"it"},
    ),
    "B107 a hard link outside": (
        tar_gz(hard(b"h", b"../../secret"), entry(b"h", b"it")), ["h"], {"h": b"it"},
    ),
    "B107 CVE-2025-4330": (
        tar_gz(link(b"d/s", b"../../../secret"), hard(b"h", b"d/s"), entry(b"h", b"it")),
        ["d/s", "h"],
        {"h": b"it"},
    ),
    "B107 a hard link to a link, whose copy would lead elsewhere": (
        tar_gz(entry(b"a/b/", kind=b"5"), link(b"a/b/s", b"../../secret"), hard(b"s", b"a/b/s")),
        ["a/b/s", "s"],
        {},
    ),
    "B107 a hard link to what is not there": (tar_gz(hard(b"h", b"nothing")), ["h"], {}),
    "B108 with names that are not too long": (
        long_way_out(length=8),
        [
            *("dddddddd/" * depth + letter for depth, letter in enumerate("abcdefghijklmnop")),
            "/".join("abcdefghijklmnop") + "/" + "l" * 254,
            "escape",
            "flag",
        ],
        {"flag": b"overwritten"},
    ),
    "B109 devices and FIFOs": (
        tar_gz(*[entry(kind, kind=kind) for kind in (b"3", b"4", b"6")]), ["3", "4", "6"], {},
    ),
}  # fmt: skip
