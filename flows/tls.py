"""A private certificate authority for one Dask cluster, and the certificate that its users share.

Dask does not check host names, so it trusts every holder of a certificate of the authority. Each
cluster therefore gets its own authority. Give the folder only to people who may run code on the
cluster.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Extension = tuple[x509.ExtensionType, bool]  # and whether it is critical


def make_certificates(
    folder: str | Path, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 365
) -> Path:
    """Write a new authority and a certificate of it: ca.pem, node.pem and node.key (mode 600).

    The key of the authority is not kept. Share the certificate to let more machines in, and make
    new ones to lock a machine out.
    """
    folder, now = Path(folder), dt.datetime.now(dt.UTC)
    if (folder / "ca.pem").exists():
        raise ValueError(
            f"{folder} already holds certificates: give another folder, or "
            f"remove this one, which locks out all of its users"
        )
    authority, node = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certify(name: str, key: ec.EllipticCurvePublicKey, *extensions: Extension) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("cluster authority"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        signed = builder.sign(authority, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    ca = certify(
        "cluster authority",
        authority.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage("key_cert_sign", "crl_sign"), True),
    )
    leaf = certify(
        "node",
        node.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage("digital_signature"), True),
        (
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            False,
        ),
        (x509.SubjectAlternativeName([_host(host) for host in hosts]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
    )
    key = node.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(folder / "node.key", key)
    (folder / "node.pem").write_bytes(leaf)
    (folder / "ca.pem").write_bytes(ca)
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


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"bigfs {name}")])


def _usage(*allowed: str) -> x509.KeyUsage:
    uses = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
        *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
    )
    return x509.KeyUsage(**{use: use in allowed for use in uses})


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_private(file: Path, content: bytes) -> None:
    """Write a file of mode 600, whole or not at all, into a folder that only its user may change.

    A file of that name is replaced, whatever its mode.
    """
    folder = file.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{folder} must belong to you, and nobody else may write to it: run chmod 700 "
            f"{folder}, or give a new folder"
        )
    # mode 600, and never an existing file
    descriptor, part = tempfile.mkstemp(prefix=f".{file.name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(part, file)
    except BaseException:
        os.unlink(part)
        raise
