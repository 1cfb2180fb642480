"""A key and a certificate for the local brokers, created by the JDK's keytool."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kafka_telemetry_lake.pipelines.runtime.java import java_program


@dataclass(frozen=True)
class Tls:
    """Files of a self-signed certificate for 127.0.0.1, and the password of both stores."""

    keystore: Path
    truststore: Path
    certificate: Path
    password: str


def make_tls(folder: Path) -> Tls:
    """Creates the files in a folder. Raises ``CalledProcessError`` if keytool fails."""
    password = secrets.token_hex(12)
    tls = Tls(folder / "broker.p12", folder / "trust.p12", folder / "broker.pem", password)
    store = ("-storetype", "PKCS12", "-storepass", password, "-alias", "broker", "-noprompt")
    _keytool(
        "-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "2",
        "-keystore", tls.keystore, *store,
    )  # fmt: skip
    _keytool("-exportcert", "-rfc", "-file", tls.certificate, "-keystore", tls.keystore, *store)
    _keytool("-importcert", "-file", tls.certificate, "-keystore", tls.truststore, *store)
    return tls


def _keytool(*arguments: str | Path) -> None:
    subprocess.run([java_program("keytool"), *map(str, arguments)], check=True, capture_output=True, text=True)
