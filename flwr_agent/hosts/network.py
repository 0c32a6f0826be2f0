"""What a host is on the network: ports, the SuperLink it is to join, the clock they must share, its key."""

from __future__ import annotations

import re
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import requests

from flwr_agent.hosts.finding import Finding, Verdict

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
RESERVED = EPHEMERAL.with_name("ip_local_reserved_ports")
AHEAD_S, BEHIND_S = 5.0, 300.0
"""Flower refuses a SuperNode whose clock is further from its SuperLink's."""
DATE_S = 1.0
"""Resolution of the clock a server shows."""
ROOT = "root certificate"
RENEW = "make new certificates (flwr-agent certificates) and give every site the new ca.crt"
EXPIRED, OTHER_NAME = 10, (62, 64)
"""OpenSSL's numbers of what is wrong with a certificate: X509_V_ERR_CERT_HAS_EXPIRED, ..._HOSTNAME_ and _IP_ADDRESS_MISMATCH."""
NTP = "let NTP set the clock (timedatectl set-ntp true)"


def port(number: int) -> Finding:
    """A port that a process of this host is to listen on."""
    low, high = map(int, EPHEMERAL.read_text(encoding="ascii").split()) if EPHEMERAL.is_file() else (32768, 60999)
    name = f"port {number}"
    if low <= number <= high and not _is_reserved(number):
        fix = f"choose one below {low}, or reserve it (sysctl net.ipv4.ip_local_reserved_ports={number})"
        return Finding(name, Verdict.FAIL, f"in the range of outgoing connections, {low} to {high}", fix)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", number))
        except PermissionError:
            return Finding(name, Verdict.FAIL, "may not be used by this user", "choose one above 1023")
        except OSError:
            return Finding(name, Verdict.FAIL, "is taken", f"end what listens there (ss -ltnp 'sport = :{number}')")
    return Finding(name, Verdict.OK, "free")


def _is_reserved(number: int) -> bool:
    """Whether the system keeps a port free of outgoing connections; the file lists ports and ranges, `8080,9000-9010`."""
    parts = RESERVED.read_text(encoding="ascii").strip().split(",") if RESERVED.is_file() else []
    ends = [part.partition("-") for part in parts if part]
    return any(int(low) <= number <= int(high or low) for low, _, high in ends)


def authority(file: Path) -> Finding:
    """The certificate of the authority that is to have signed the SuperLink's."""
    from cryptography import x509

    copy = "copy ca.crt anew from the SuperLink's host (`flwr-agent certificates` made it there)"
    try:
        found = x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        return Finding(ROOT, Verdict.FAIL, f"{file} cannot be read ({error.strerror})", copy)
    except ValueError:
        return Finding(ROOT, Verdict.FAIL, f"{file} holds no certificate in PEM", copy)
    if (end := max(one.not_valid_after_utc for one in found)) < datetime.now(UTC):
        return Finding(ROOT, Verdict.FAIL, f"{file} has expired on {end:%Y-%m-%d}", RENEW)
    return Finding(ROOT, Verdict.OK, str(file))


def superlink(address: str, root: Path | None) -> Iterator[Finding]:
    """Whether the SuperLink answers under TLS that this host trusts, and what its clock says."""
    if root and (trusted := authority(root)).verdict is Verdict.FAIL:
        yield trusted
        return
    try:
        with requests.Session() as session:
            session.trust_env = False
            sent = time.time()
            answer = session.get(f"https://{address}/health", timeout=10, verify=str(root) if root else True)
            middle = (sent + time.time()) / 2
            answer.raise_for_status()
    except requests.exceptions.SSLError as error:
        yield _distrusted(address, root, error)
        return
    except (requests.RequestException, OSError) as error:
        fix = "start it, open its port in the firewall, check the address"
        yield Finding("superlink", Verdict.FAIL, f"{address} does not answer ({_reason(error)})", fix)
        return
    yield Finding("superlink", Verdict.OK, f"{address} answers")
    yield clock(middle - parsedate_to_datetime(answer.headers["date"]).timestamp())


def _distrusted(address: str, root: Path | None, error: Exception) -> Finding:
    """Why the handshake failed, in words of the files that are involved."""
    cause = _innermost(error)
    if not isinstance(cause, ssl.SSLCertVerificationError):
        fix = "give the address of a SuperLink that `flwr-agent superlink` started"
        return Finding("superlink", Verdict.FAIL, f"{address} speaks no TLS that fits ({_reason(error)})", fix)
    if cause.verify_code in OTHER_NAME:
        found, fix = "its certificate is for other names", "give --superlink a HOST that it names"
    elif cause.verify_code == EXPIRED:
        found, fix = "its certificate has expired", RENEW
    elif root:
        found = f"{root} is not of the authority that signed its certificate"
        fix = "give --root-certificates the ca.crt of this SuperLink"
    else:
        found = "no authority of this system has signed its certificate"
        fix = "give --root-certificates its ca.crt"
    return Finding("superlink", Verdict.FAIL, f"{address} is not trusted: {found}", fix)


def _innermost(error: BaseException) -> BaseException:
    """What a nested network error was made of: libraries keep it as argument, attribute or context."""
    for inner in (getattr(error, "reason", None), *error.args, error.__context__):
        if isinstance(inner, BaseException):
            return _innermost(inner)
    return error


def clock(ahead_s: float) -> Finding:
    """Our clock against the SuperLink's, in seconds; positive is ahead."""
    found = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the SuperLink's"
    if not -BEHIND_S - DATE_S <= ahead_s <= AHEAD_S + DATE_S:
        return Finding("clock", Verdict.FAIL, found, f"Flower would refuse this host; {NTP}")
    if abs(ahead_s) > 2 * DATE_S:
        return Finding("clock", Verdict.WARN, found, NTP)
    return Finding("clock", Verdict.OK, "agrees with the SuperLink's")


def key(file: Path) -> Finding:
    """The private key that a SuperNode shows."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    make = "make one (flwr-agent key FILE) and have its .pub registered at the SuperLink"
    try:
        found = load_ssh_private_key(file.read_bytes(), None)
    except TypeError:  # cryptography's answer where a password is needed
        fix = f"take it off (ssh-keygen -p -N '' -f {file})"
        return Finding("key", Verdict.FAIL, f"{file} is protected by a password, which nobody gives a SuperNode", fix)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        return Finding("key", Verdict.FAIL, f"{file} cannot be read ({error})", make)
    if not isinstance(found, EllipticCurvePrivateKey):
        return Finding("key", Verdict.FAIL, f"{file} is not an elliptic-curve key", make)
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding("key", Verdict.WARN, f"{file} can be read by others", f"chmod 600 {file}")
    return Finding("key", Verdict.OK, str(file))


def _reason(error: Exception) -> str:
    """The innermost words of a nested network error."""
    text = re.sub(r"<[^>]*>", "", str(error))
    return re.split(r"[:(] ?", text.strip(" )'\""))[-1].strip(" )'\"") or type(error).__name__
