"""As much of DER as time stamps need: values with a tag, in values with a tag."""

from __future__ import annotations

from dataclasses import dataclass

INTEGER, OCTETS, NULL, OID, SEQUENCE, SET, BOOLEAN, TIME = 0x02, 0x04, 0x05, 0x06, 0x30, 0x31, 0x01, 0x18
CONTEXT_0 = 0xA0
SHORT = 0x80


class BadDer(ValueError):
    """These bytes are not DER, or not of the shape that they should have."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value: its tag, what is in it, and all of its bytes."""

    tag: int
    body: bytes
    raw: bytes

    def parts(self) -> list[Value]:
        """The values in it. Raises BadDer."""
        found, rest = [], self.body
        while rest:
            one, rest = _split(rest)
            found.append(one)
        return found

    def part(self, index: int, tag: int) -> Value:
        """The value at this place, which has this tag. Raises BadDer."""
        found = self.parts()
        if index >= len(found) or found[index].tag != tag:
            raise BadDer(f"there is no value with the tag {tag:#x} where one should be")
        return found[index]

    def integer(self) -> int:
        """As a number."""
        return int.from_bytes(self.body, "big", signed=True)


def read(data: bytes) -> Value:
    """The one value that these bytes are. Raises BadDer."""
    value, rest = _split(data)
    if rest:
        raise BadDer("something follows where nothing should")
    return value


def _split(data: bytes) -> tuple[Value, bytes]:
    if len(data) < 2 or data[0] & 0x1F == 0x1F:
        raise BadDer("a value ends too early, or has a long tag")
    length, start = data[1], 2
    if length >= SHORT:
        size = length - SHORT
        if not 1 <= size <= 4 or len(data) < 2 + size:
            raise BadDer("a value has no length")
        length, start = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
        if length < SHORT or data[2] == 0:
            raise BadDer("a length is longer than it has to be")
    end = start + length
    if len(data) < end:
        raise BadDer("a value ends too early")
    return Value(data[0], data[start:end], data[:end]), data[end:]


def write(tag: int, *parts: bytes) -> bytes:
    """A value of these parts."""
    body = b"".join(parts)
    if len(body) < SHORT:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, SHORT + len(length)]) + length + body


def write_integer(value: int) -> bytes:
    """A number that is not negative."""
    return write(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))
