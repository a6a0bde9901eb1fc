"""The certificate of one Dask cluster, which all of its users share.

It is signed with its own key and is no authority, so nobody can make another one that the cluster
trusts. Dask does not check host names, so it trusts every holder. Each cluster therefore gets its
own. Give the folder only to people who may run code on the cluster.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bigfs.storage import atomic

NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bigfs cluster")])


def make_certificates(
    folder: str | Path, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 365
) -> Path:
    """Write a certificate as ca.pem and node.pem, and its key as node.key (mode 600).

    Share the folder to let more machines in, and make a new one to lock a machine out.
    """
    folder, now = Path(folder), dt.datetime.now(dt.UTC)
    if (folder / "ca.pem").exists():
        raise ValueError(
            f"{folder} already holds certificates: give another folder, or "
            f"remove this one, which locks out all of its users"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(NAME)
        .issuer_name(NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _require_private(folder)
    with atomic.write(folder / "node.key") as part:
        part.touch(mode=0o600)
        part.write_bytes(secret)
    for name in ("node.pem", "ca.pem"):
        (folder / name).write_bytes(certificate)
    return folder


def environment(folder: str | Path) -> dict[str, str]:
    """Return the variables that make a Dask cluster accept only holders of the certificate.

    They are read by `dask scheduler` and `dask worker`.
    """
    folder = Path(folder).absolute()
    variables = {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(folder / "ca.pem"),
    }
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        variables[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = str(folder / "node.pem")
        variables[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = str(folder / "node.key")
    return variables


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _require_private(folder: Path) -> None:
    """Make a folder, or refuse one that somebody else may change."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{folder} must belong to you, and nobody else may write to it: run chmod 700 "
            f"{folder}, or give a new folder"
        )
