"""Certificates, checked by OpenSSL itself through a handshake in memory."""

import shutil
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from bigfs import engine
from bigfs.flows.tls import environment, make_certificates

pytestmark = pytest.mark.process


def context(folder, server):
    made = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH, cafile=folder / "ca.pem"
    )
    made.load_cert_chain(folder / "node.pem", folder / "node.key")
    made.verify_mode = ssl.CERT_REQUIRED
    # as Python 3.13 does by default
    made.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return made


def handshake(client, server, name="localhost"):
    """Both ends of a TLS connection through memory; raises what OpenSSL raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    parent = tmp_path_factory.mktemp("tls")
    return make_certificates(parent / "own"), make_certificates(parent / "foreign")


def test_both_ends_prove_who_they_are(folders):
    own, _ = folders
    client, _ = handshake(context(own, server=False), context(own, server=True))
    assert client.getpeercert()["subject"][0][0] == ("commonName", "bigfs cluster")


@pytest.mark.parametrize("foreign_end", [0, 1])
def test_another_certificate_is_refused(folders, foreign_end):
    own, foreign = folders
    folder = [own, own]
    folder[foreign_end] = foreign
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context(folder[0], server=False), context(folder[1], server=True))


def test_a_holder_makes_no_certificate_that_the_others_take(folders, tmp_path):
    own, foreign = folders
    ca = x509.load_pem_x509_certificate((own / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((own / "node.key").read_bytes(), None)
    other = x509.load_pem_x509_certificate((foreign / "node.pem").read_bytes())
    issued = (
        x509.CertificateBuilder(ca.subject, ca.subject, other.public_key(), 1)
        .not_valid_before(other.not_valid_before_utc)
        .not_valid_after(other.not_valid_after_utc)
        .sign(key, hashes.SHA256())
    )
    shutil.copytree(own, forged := tmp_path / "forged")
    shutil.copy(foreign / "node.key", forged / "node.key")
    (forged / "node.pem").write_bytes(issued.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context(own, server=False), context(forged, server=True))


def test_the_host_name_is_in_the_certificate(folders):
    own, _ = folders
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(context(own, server=False), context(own, server=True), name="elsewhere")


def test_the_key_is_private(folders):
    own, _ = folders
    assert stat.S_IMODE((own / "node.key").stat().st_mode) == 0o600
    assert sorted(p.name for p in own.iterdir()) == ["ca.pem", "node.key", "node.pem"]
    assert set(environment(own).values()) == {
        "true",
        *(str(own / name) for name in ("ca.pem", "node.key", "node.pem")),
    }


def test_certificates_replace_a_key_file_that_others_could_read(tmp_path):
    (tmp_path / "tls").mkdir(mode=0o755)
    key = tmp_path / "tls" / "node.key"
    key.touch()
    key.chmod(0o644)
    with key.open() as others:
        make_certificates(tmp_path / "tls")
        assert others.read() == ""
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert sorted(p.name for p in (tmp_path / "tls").iterdir()) == [
        "ca.pem",
        "node.key",
        "node.pem",
    ]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_certificates_refuse_a_folder_that_others_can_write(tmp_path, mode):
    folder = tmp_path / "tls"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match="chmod 700"):
        make_certificates(folder)
    assert not list(folder.iterdir())


def test_certificates_follow_no_link_of_that_name(tmp_path):
    (tmp_path / "tls").mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text("untouched")
    (tmp_path / "tls" / "node.key").symlink_to(tmp_path / "elsewhere")
    make_certificates(tmp_path / "tls")
    assert (tmp_path / "elsewhere").read_text() == "untouched"
    assert not (tmp_path / "tls" / "node.key").is_symlink()


def test_expired_certificates_are_refused(folders, tmp_path):
    own, _ = folders
    expired = make_certificates(tmp_path / "expired", days=0)
    for client, server in ((expired, expired), (own, expired)):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context(client, server=False), context(server, server=True))
    with (
        pytest.raises(ValueError, match="expired on"),
        engine.cluster("tls://127.0.0.1:1", security=expired),
    ):
        raise AssertionError("not reached")


def test_certificates_are_not_overwritten(folders):
    with pytest.raises(ValueError, match="already holds certificates"):
        make_certificates(folders[0])


def test_a_folder_without_certificates_says_what_to_do(tmp_path):
    with (
        pytest.raises(ValueError, match="bigfs certificates"),
        engine.cluster("tls://127.0.0.1:1", security=tmp_path, timeout="1s"),
    ):
        raise AssertionError("not reached")
