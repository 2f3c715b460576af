"""The `cograil captures` commands: verify a proof, check the database, and print the signing key."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import click

from cograil.app_extras import require_extra
from cograil.apps.captures.settings import CaptureSettings
from cograil.cli.display.output import out, plain, warn, write_json
from cograil.cli.instance_client import InstanceClient, connected
from cograil.cli.job_wait import listen_for_job_ends
from cograil.cli.options import Amount, instance_options, settings_for
from cograil.errors import NotFound, WaitTimeout
from cograil.model.ids import is_id
from cograil.processes import run_async
from cograil.settings import Settings

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
key_option = click.option(
    "--key",
    "keys",
    type=FILE,
    multiple=True,
    help="A public key that may have signed, in PEM; repeatable, one of them must have.",
)


def _require_extra() -> None:
    """Raise UsageError if the cryptographic extra is not installed."""
    require_extra("captures", ["cryptography", "rfc3161_client"])


@click.group()
def captures() -> None:
    """Verify proofs of captures, check the audit log, and print the public signing key.

    \b
    Examples:
      cograil captures verify proof.json --object evidence.enc --key signer.pem
      cograil captures check --key signer.pem
      cograil captures key > signer.pem
      cograil captures wait 0b7a4a63-0f5e-4a54-9a53-8d7f5a3f2a11
    """


@captures.command()
@click.argument("proof", metavar="MANIFEST", type=click.File("rb"))
@click.option(
    "--object", "object_", type=click.File("rb"), help="The encrypted object, or its decrypted content."
)
@click.option(
    "--audit",
    type=click.File("rb"),
    multiple=True,
    help="The audit trail, as GET /v1/captures/ID/audit gives it; once for each page, in their order.",
)
@key_option
@click.option(
    "--tsa-ca", type=FILE, help="The CA certificates, in PEM, that the time-stamping authority must have."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(
    proof: BinaryIO,
    object_: BinaryIO | None,
    audit: tuple[BinaryIO, ...],
    keys: tuple[Path, ...],
    tsa_ca: Path | None,
    as_json: bool,
) -> int:
    """Verify a proof, and the object and audit trail it covers, offline. Exits 1 when anything was changed.

    MANIFEST is the response of GET /v1/captures/ID/proof, byte for byte; `-` reads stdin. Without --key the
    signature is verified, but not whose key made it; without --tsa-ca a time stamp is verified, but not whose it is.

    \b
    Examples:
      cograil captures verify proof.json --object evidence.enc --audit audit.json --key signer.pem
      cograil captures verify proof.json --key signer.pem --tsa-ca authority.pem
    """
    _require_extra()
    from cograil.apps.captures.proof_verifier import STAMPED_BY_UNKNOWN  # noqa: PLC0415
    from cograil.apps.captures.proof_verifier import verify as check  # noqa: PLC0415
    from cograil.apps.captures.rfc3161 import load_authorities  # noqa: PLC0415
    from cograil.apps.captures.signing import load_public  # noqa: PLC0415

    trusted = [load_public(key) for key in keys]
    trail = [page.read() for page in audit] or None
    results = check(
        proof.read(), object=object_, trail=trail, trusted=trusted, authorities=load_authorities(tsa_ca)
    )
    is_proven = all(result.holds for result in results)
    if as_json:
        claims = [
            {"claim": result.claim, "holds": result.holds, "problem": result.problem} for result in results
        ]
        write_json({"is_proven": is_proven, "claims": claims})
        return 0 if is_proven else 1
    for result in results:
        out().print(plain(f"{'yes' if result.holds else 'NO '}  {result.claim}"), soft_wrap=True)
        if result.problem:
            out().print(plain(f"     {result.problem}"), soft_wrap=True)
    if is_proven and not trusted:
        warn("the key was not checked: name the key that you trust with --key")
    if is_proven and any(result.claim == STAMPED_BY_UNKNOWN for result in results):
        warn("the time-stamping authority was not checked: name the CA that you trust with --tsa-ca")
    return 0 if is_proven else 1


@captures.command()
@click.argument("capture", metavar="CAPTURE_ID")
@click.option(
    "--timeout",
    type=Amount(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait at most this long, then exit 5. Sealing continues.",
)
@instance_options
def wait(capture: str, timeout: float, data_dir: Path | None, as_json: bool) -> int:
    """Wait until a capture is sealed. Exits 1 when it failed, and says why.

    \b
    Examples:
      cograil captures wait 0b7a4a63-0f5e-4a54-9a53-8d7f5a3f2a11
    """
    if not is_id(capture.lower()):
        raise click.BadParameter("a capture has a UUID", param_hint="CAPTURE_ID")
    return run_async(_wait(settings_for(data_dir), capture.lower(), timeout, as_json))


async def _wait(settings: Settings, capture: str, timeout: float, as_json: bool) -> int:
    from cograil.apps.captures.states import FAILED, FINAL  # noqa: PLC0415

    clock = asyncio.get_running_loop().time
    until = clock() + timeout
    async with connected(settings) as client, listen_for_job_ends(client) as listener:
        while (record := await _find(client, capture)).state not in FINAL:
            if clock() >= until:
                raise WaitTimeout(
                    f"it is {record.state} after {timeout:g} s; {client.next_steps(record.job_id)}"
                )
            await listener.wait(min(1.0, until - clock()))
    output = {"capture_id": record.capture_id, "state": record.state, "error": record.error}
    if as_json:
        write_json(output | {"sealed_at": record.sealed_at, "job_id": record.job_id})
    else:
        out().print(plain(f"{record.state}: {record.error or record.sealed_at}"), soft_wrap=True)
    return 1 if record.state == FAILED else 0


async def _find(client: InstanceClient, capture: str) -> Any:
    from cograil.apps.captures.queries import find_capture  # noqa: PLC0415

    async with client.db.transaction("show_capture") as tx:
        record = await find_capture(tx, client.tenant, capture)
    if record is None:
        raise NotFound(f"capture {capture} does not exist")
    return record


@captures.command()
@instance_options
def key(data_dir: Path | None, as_json: bool) -> None:
    """Print the public signing key of this instance, in PEM, for `verify --key`.

    \b
    Examples:
      cograil captures key > signer.pem
    """
    _require_extra()
    from cograil.apps.captures.signing import load_configured_signer  # noqa: PLC0415

    settings = settings_for(data_dir)
    if not settings.data_dir.is_dir():  # otherwise a new key would be created there, which signs nothing
        raise NotFound(f"the data directory {settings.data_dir} does not exist: `cograil up` creates it")
    signer = load_configured_signer(settings.section(CaptureSettings), settings.data_dir)
    pem = signer.public_pem().decode()
    if as_json:
        write_json(signer.facts | {"pem": pem})
    else:
        click.echo(pem, nl=False)


@captures.command()
@key_option
@instance_options
def check(keys: tuple[Path, ...], data_dir: Path | None, as_json: bool) -> int:
    """Check the whole audit log and every proof in the database. Exits 1 when anything was changed.

    Unlike `verify`, this also covers refused requests and proofs that were never fetched. Time stamps are checked
    against the CA certificates of COGRAIL_CAPTURES__TSA_CA_FILE, if that is set.

    \b
    Examples:
      cograil captures check --key signer.pem
    """
    _require_extra()
    from cograil.apps.captures.signing import load_public  # noqa: PLC0415

    trusted = [load_public(key) for key in keys]
    return run_async(_check(settings_for(data_dir), trusted, as_json))


async def _check(settings: Settings, trusted: list[bytes], as_json: bool) -> int:
    from cograil.apps.captures.integrity_check import check_vault  # noqa: PLC0415
    from cograil.apps.captures.rfc3161 import load_authorities  # noqa: PLC0415

    authorities = load_authorities(settings.section(CaptureSettings).tsa_ca_file)
    async with connected(settings) as client:
        report = await check_vault(client.db, trusted, authorities)
    if as_json:
        write_json(asdict(report))
        return 1 if report.problems else 0
    for problem in report.problems:
        out().print(plain(f"NO   {problem.chain}: {problem.problem}"), soft_wrap=True)
    summary = f"{report.entries:,} entries of {report.chains:,} chains, {report.proofs:,} proofs of "
    summary += f"{report.captures:,} captures: " + (
        f"{len(report.problems):,} wrong" if report.problems else "all hold"
    )
    out().print(plain(summary), soft_wrap=True)
    if report.proofs and not trusted:
        warn("the keys were not checked: name the key that you trust with --key")
    return 1 if report.problems else 0
