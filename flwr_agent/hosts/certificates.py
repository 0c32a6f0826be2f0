"""Certificates of a SuperLink and keys of SuperNodes, as Flower reads them.

The SuperLink proves who it is by TLS, with a certificate that an authority of the federation's own has signed; each
SuperNode proves who it is by a key whose public half is registered at the SuperLink.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from flwr_agent.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DAYS = 1825
"""How long certificates are valid; as the authority signs once, both end together."""
BACKDATED = timedelta(days=1)
"""Certificates are valid from a day before they are made, for hosts whose clocks differ."""
SECRET_BYTES = 32
COMMON_NAME = 64
"""Characters that X.509 has room for there; what clients check is the list of hosts."""
_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9])?\.)*[a-z_]([a-z0-9_-]*[a-z0-9])?", re.ASCII | re.IGNORECASE)
"""A host's name; the last word begins with a letter, or it would be an address."""


@dataclass(frozen=True, slots=True)
class Authority:
    """The files of a SuperLink's TLS, in one folder.

    Example:
        >>> Authority(Path("certificates")).root
        PosixPath('certificates/ca.crt')
    """

    folder: Path

    @property
    def root(self) -> Path:
        """The authority's certificate: what SuperNodes and commands trust; not a secret."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The SuperLink's certificate."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """The SuperLink's private key."""
        return self.folder / "server.key"

    @property
    def secret(self) -> Path:
        """What a SuperExec shows the SuperLink before it may run ServerApps."""
        return self.folder / "superexec.secret"

    def check(self, *files: Path) -> None:
        """Refuse a folder that lacks one of these files.

        Raises:
            ConfigError: names it, and the command that makes it.
        """
        for file in files:
            if not file.is_file():
                fix = f"lacks {file.name}; `flwr-agent certificates` makes a folder with all four files"
                raise ConfigError("folder", str(self.folder), fix)


def make_authority(folder: Path, hosts: Sequence[str]) -> Authority:
    """Make an authority, and a certificate of a SuperLink that is reached under the names and addresses `hosts`.

    The authority's private key is not kept: whoever has it could pose as the SuperLink. New hosts, or an expired
    certificate, need a new authority, whose `ca.crt` every site must get.

    Raises:
        ConfigError: no host or a wrong one is given, or the folder holds one of these files already.
    """
    from cryptography.hazmat.primitives.asymmetric import ec

    if not hosts:
        raise ConfigError("hosts", "", "give the name or address under which sites reach the SuperLink")
    names = [_host(host) for host in hosts]
    found = Authority(folder)
    for file in (found.root, found.certificate, found.key, found.secret):
        if file.exists():
            raise ConfigError("folder", str(folder), f"holds {file.name} already; choose another folder")
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(signer, None, "flwr-agent federation", signer)
    server = _certificate(key, authority, hosts[0], signer, names)
    private = {found.key: _private_pem(key), found.secret: secrets.token_bytes(SECRET_BYTES)}
    _write_all(folder, private, {found.certificate: _pem(server), found.root: _pem(authority)})
    return found


def make_key(file: Path) -> Path:
    """Make a SuperNode's private key in `file` and return the file of its public key, which the SuperLink registers.

    Raises:
        ConfigError: one of the two exists.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public = file.with_name(file.name + ".pub")
    for half in (file, public):
        if half.exists():
            fix = "exists; a new key would have to be registered anew, so choose another name"
            raise ConfigError("key", str(half), fix)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    shown = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_all(file.parent, {file: private}, {public: shown + b"\n"})
    return public


def check_public(file: Path) -> None:
    """Refuse what is not a site's public key.

    Raises:
        ConfigError: the file holds something else, such as the private half.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        found = load_ssh_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        fix = "holds no public key; give the file FILE.pub that `flwr-agent key FILE` made"
        raise ConfigError("public key", str(file), fix) from None
    if not isinstance(found, EllipticCurvePublicKey):
        fix = "is no elliptic-curve key, which Flower asks for; make one with `flwr-agent key FILE`"
        raise ConfigError("public key", str(file), fix)


def _certificate(
    key: EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    name: str,
    signer: EllipticCurvePrivateKey,
    hosts: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME])])
    now, is_authority = datetime.now(UTC), issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(is_authority=is_authority), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _NAME.fullmatch(host):
            fix = "is no host name or address; give it without scheme and port, other alphabets in their xn-- form"
            raise ConfigError("hosts", host, fix) from None
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_all(folder: Path, private: Mapping[Path, bytes], public: Mapping[Path, bytes]) -> None:
    """Write files of one folder, all or none; the private ones are for this user alone.

    A half set would be refused ever after, as files that are there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as scratch:
        for file, data in {**private, **public}.items():
            unfinished = Path(scratch, file.name)
            unfinished.touch(mode=0o600 if file in private else 0o666)
            unfinished.write_bytes(data)
        for file in (*private, *public):
            Path(scratch, file.name).rename(file)
