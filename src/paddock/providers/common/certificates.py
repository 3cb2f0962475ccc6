"""The certificate authorities that programs in sandboxes trust where the operator adds some (``PADDOCK_EXTRA_CA``).

They are in one file with those of this machine, because most programs read one file instead of their own list, not
beside it.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
from collections.abc import Mapping
from pathlib import Path

from paddock import errors

FILE = "ca.pem"
_VARIABLES = (
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
)
"""``sudo`` inside passes them on (``agent/src/sudo_command.c``)."""
_OF_SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
)
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)


def variables(path: str) -> Mapping[str, str]:
    """By which programs find the file at this path inside."""
    return dict.fromkeys(_VARIABLES, path)


def write(extra: Path, target: Path) -> None:
    """This machine's authorities and those in ``extra``: of that nothing but the certificates, so no private key."""
    own = os.environ.get("SSL_CERT_FILE")
    system = next((path for path in (*([own] if own else []), *_OF_SYSTEMS) if Path(path).is_file()), None)
    if system is None:
        raise errors.ProviderRefused(
            "PADDOCK_EXTRA_CA adds to the certificate authorities of this machine, which has none in a usual place "
            "(Debian: apt install ca-certificates). Or name their file in SSL_CERT_FILE."
        )
    found = [*_certificates(Path(system)), *_certificates(extra.expanduser())]
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.write_text("\n".join([*found, ""]))
    draft.chmod(0o644)
    draft.replace(target)


def _certificates(path: Path) -> list[str]:
    try:
        found = _CERTIFICATE.findall(path.read_text())
        if not found:
            raise ValueError("it has no PEM block 'BEGIN CERTIFICATE'")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(found))
    except (OSError, ValueError) as error:
        raise errors.ProviderRefused(f"PADDOCK_EXTRA_CA: {str(path)!r} cannot be used: {error}") from error
    return found
