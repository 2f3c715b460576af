"""What a real RAR packer made of known bytes; only the headers around it are ours.

Debian has nothing that packs a RAR, so these streams are those of three archives in the test-suite of
libarchive 3.6.2: test_read_format_rar5_compressed, test_read_format_rar_compress_normal and _best.

Copyright (c) 2003-2007 Tim Kientzle
Copyright (c) 2011 Andres Mejia
Copyright (c) 2011-2012 Michihiro NAKAJIMA
Copyright (c) 2018 Grzegorz Antoniak
All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions
are met:
1. Redistributions of source code must retain the above copyright
   notice, this list of conditions and the following disclaimer.
2. Redistributions in binary form must reproduce the above copyright
   notice, this list of conditions and the following disclaimer in the
   documentation and/or other materials provided with the distribution.

THIS SOFTWARE IS PROVIDED BY THE AUTHOR(S) ``AS IS'' AND ANY EXPRESS OR
IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES
OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE DISCLAIMED.
IN NO EVENT SHALL THE AUTHOR(S) BE LIABLE FOR ANY DIRECT, INDIRECT,
INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES (INCLUDING, BUT
NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES; LOSS OF USE,
DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON ANY
THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF
THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class RarStream:
    """A stream, how it was packed, and what comes out of it."""

    version: int  # of RAR
    method: int  # as the header of a file says it
    stream: bytes
    content: bytes


TEXT = b"test text document\r\n"
SQUARES = b"".join(struct.pack("<I", max(0, k * k - 3 * k + 1)) for k in range(1, 301))

RAR4_NORMAL = RarStream(
    4, 0x33, bytes.fromhex("0800c8fe8cf7a17877b759a2b83107fc4b95ffc228a7ccf34adb883de6a0"), TEXT
)
RAR4_BEST = RarStream(
    4, 0x35, bytes.fromhex("a71873ef96d84ace9d5033726af62f95245d0f0ff4d785bb0000bf8867f6a9ffd4"), TEXT
)
RAR5_NORMAL = RarStream(
    5,
    0x280,
    base64.b85decode(
        "%JgLcCuLw%A60f;zm$@3$<Jk$SqyO5Ws?}ik`snPNhINrkdjFxB;%4vAqYt%Aqgaql1M@l63w-5dwnwwfPEbUu0"
        "Ni-pZ7uj_uBW}d9ONO=m0<g0LUPppO0@}PcI(+?#{lho{oNAPChOk4gKBCt(|>sT}?eL4E)^8telK|Y+Ot{8~fY"
        "KyPJ!9Yg<b@D;oOh+PbQmdRj_4DjEs-*~z(?d1*;BvQjb;=ujVyjEaeeI&j&jXh<jr=f}6Fhi6AOCl>bBww88QH"
        "Wl^NwUu>MG82Da$o&FS=#=O9M3+U1FlUw*YB(vTDU=uHLeX}eMl!=Vz^F(6pp?dG3SVVVtX5VFivf{nH!cTt;Re"
        "7DF$9c)d6-r-3#Or#*f*PpgMeUi53XSopr&>h4+CxJd%cHO(2e|9K#dqN=L#N834>zz;O06UA_S@7g%&$wL;3Mg"
        "fNUWR2!zrxoRBXi00"
    ),
    SQUARES,
)
