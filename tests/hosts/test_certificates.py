import errno
import ssl
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from flwr_agent.errors import ConfigError
from flwr_agent.hosts.certificates import Authority, check_public, make_authority, make_key


def shake_hands(authority: Authority, *, trusted: Path, name: str) -> None:
    """A TLS handshake in memory; raises what the client would."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(authority.certificate, authority.key)
    client_context = ssl.create_default_context(cafile=trusted)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_a_certificate_is_good_for_the_hosts_it_names_alone(tmp_path: Path):
    authority = make_authority(tmp_path / "tls", ["superlink.example.org", "127.0.0.1"])
    shake_hands(authority, trusted=authority.root, name="superlink.example.org")
    shake_hands(authority, trusted=authority.root, name="127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(authority, trusted=authority.root, name="other.example.org")


def test_another_authority_is_not_trusted(tmp_path: Path):
    ours, theirs = (make_authority(tmp_path / name, ["localhost"]) for name in ("ours", "theirs"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(ours, trusted=theirs.root, name="localhost")


def test_secrets_are_for_their_owner_alone_and_nothing_is_overwritten(tmp_path: Path):
    authority = make_authority(tmp_path, ["localhost"])
    public = make_key(tmp_path / "site")
    for secret in (authority.key, authority.secret, tmp_path / "site"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match=r"holds ca\.crt already"):
        make_authority(tmp_path, ["localhost"])
    with pytest.raises(ConfigError, match="registered anew"):
        make_key(tmp_path / "site")
    private = load_ssh_private_key((tmp_path / "site").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key(public.read_bytes())
    assert private.curve.name == "secp384r1"


@pytest.mark.parametrize("name", ["ca.crt", "server.pem", "server.key", "superexec.secret"])
def test_a_file_of_the_user_s_is_never_overwritten(tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"holds {name} already"):
        make_authority(tmp_path, ["localhost"])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize("written", range(4))
def test_a_disk_that_fills_up_leaves_nothing_that_would_be_refused_later(tmp_path: Path, written: int):
    whole, left = Path.write_bytes, iter(range(written))

    def full(file: Path, data: bytes) -> int:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(file, data)

    for make in (lambda: make_authority(tmp_path / "tls", ["localhost"]), lambda: make_key(tmp_path / "tls" / "site")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "write_bytes", full)
            left = iter(range(min(written, 1) if (tmp_path / "tls").exists() else written))
            with pytest.raises(OSError, match="No space"):
                make()
        assert list((tmp_path / "tls").iterdir()) == []
    make_authority(tmp_path / "tls", ["localhost"])
    make_key(tmp_path / "tls" / "site")


def test_a_public_key_without_its_private_half_is_never_overwritten(tmp_path: Path):
    (tmp_path / "site.pub").write_text("mine")
    with pytest.raises(ConfigError, match=r"site\.pub.*exists"):
        make_key(tmp_path / "site")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("site.pub", "mine")]


def test_a_key_of_another_kind_is_not_registered(tmp_path: Path):
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    encoding, form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    (tmp_path / "other.pub").write_bytes(key.public_bytes(encoding, form))
    with pytest.raises(ConfigError, match="is no elliptic-curve key"):
        check_public(tmp_path / "other.pub")


@pytest.mark.parametrize(
    "host", ["", "bad host", "https://a.org", "a.org:8000", "999.1.1.1", "m\u00fcnchen.de", "-a", "a..b"]
)
def test_a_host_that_no_client_could_ask_for_is_refused_before_anything_is_made(tmp_path: Path, host: str):
    with pytest.raises(ConfigError, match="no host name or address"):
        make_authority(tmp_path / "tls", ["localhost", host])
    assert not (tmp_path / "tls").exists()


@pytest.mark.parametrize(
    "host", ["a", "superlink-1.example.org", "*.example.org", "10.0.0.1", "::1", "a." * 40 + "org", "xn--mnchen-3ya.de"]
)
def test_names_and_addresses_are_hosts(tmp_path: Path, host: str):
    assert make_authority(tmp_path, [host]).certificate.is_file()


def test_the_private_half_of_a_key_is_not_taken_for_the_public_one(tmp_path: Path):
    check_public(make_key(tmp_path / "site"))
    with pytest.raises(ConfigError, match=r"give the file FILE\.pub"):
        check_public(tmp_path / "site")
