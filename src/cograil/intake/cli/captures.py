"""Commands about captures: verify a proof, and show who signs here."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from cograil.errors import UsageError
from cograil.intake.cli.options import instance_options, settings_for
from cograil.intake.cli.output import out, plain, warn, write_json

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _require_extra() -> None:
    """Raises UsageError where what opens and signs is not installed."""
    try:
        import cryptography  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError("this needs the extra `captures`: pip install 'cograil[captures]'") from error


@click.group()
def captures() -> None:
    """Verify proofs of captures, and show who signs here.

    \b
    Examples:
      cograil captures verify proof.json --object evidence.enc --key signer.pem
      cograil captures key > signer.pem
    """


@captures.command()
@click.argument("proof", metavar="MANIFEST", type=click.File("rb"))
@click.option("--object", "object_", type=click.File("rb"), help="The encrypted object, or what was in it.")
@click.option(
    "--audit",
    type=click.File("rb"),
    multiple=True,
    help="The audit trail, as GET /v1/captures/ID/audit gives it; once for each page, in their order.",
)
@click.option("--key", type=FILE, help="The public key that must have signed, in PEM.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(
    proof: BinaryIO, object_: BinaryIO | None, audit: tuple[BinaryIO, ...], key: Path | None, as_json: bool
) -> int:
    """Check a proof, and what it is about. Exits 1 when anything was changed. Asks nobody.

    MANIFEST is what GET /v1/captures/ID/proof gives, byte for byte; `-` reads stdin. Without --key it is
    checked that nothing was changed since it was signed, but not by whom.

    \b
    Examples:
      cograil captures verify proof.json --object evidence.enc --audit audit.json --key signer.pem
    """
    _require_extra()
    from cograil.apps.captures.signing import load_public  # noqa: PLC0415
    from cograil.apps.captures.verifying import verify as check  # noqa: PLC0415

    trusted = None if key is None else load_public(key)
    trail = [page.read() for page in audit] or None
    found = check(proof.read(), object=object_, trail=trail, trusted=trusted)
    is_proven = all(one.holds for one in found)
    if as_json:
        claims = [{"claim": one.claim, "holds": one.holds, "problem": one.problem} for one in found]
        write_json({"is_proven": is_proven, "claims": claims})
        return 0 if is_proven else 1
    for one in found:
        out().print(plain(f"{'yes' if one.holds else 'NO '}  {one.claim}"), soft_wrap=True)
        if one.problem:
            out().print(plain(f"     {one.problem}"), soft_wrap=True)
    if is_proven and trusted is None:
        warn("whose key that is was not checked: --key names the one you trust")
    return 0 if is_proven else 1


@captures.command()
@instance_options
def key(data_dir: Path | None, as_json: bool) -> None:
    """Print the public key of those who sign here, in PEM, for `verify --key`.

    \b
    Examples:
      cograil captures key > signer.pem
    """
    _require_extra()
    from cograil.apps.captures.signing import load_signer  # noqa: PLC0415

    settings = settings_for(data_dir)
    signer = load_signer(settings.captures.signing_key or settings.data_dir / "captures" / "signing.pem")
    pem = signer.public_pem().decode()
    if as_json:
        write_json(signer.facts | {"pem": pem})
    else:
        click.echo(pem, nl=False)
