"""A Dask cluster in separate processes, whose members authenticate over TLS."""

from __future__ import annotations

import datetime
import importlib
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from privet.experiments.local_federation import find_free_ports

_TIMEOUT_SECONDS = 60.0


class DaskCluster(AbstractContextManager["DaskCluster"]):
    """A scheduler and its workers, with a temporary CA and certificate."""

    def __init__(self, folder: Path, workers: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        _make_certificates(folder)
        (self._port,) = find_free_ports(1)
        self.address = f"tls://127.0.0.1:{self._port}"
        self._count = workers
        self.start()

    def start(self) -> None:
        """Start the scheduler and its workers, or their replacements."""
        self.scheduler = self._start("scheduler", "--host=127.0.0.1", f"--port={self._port}")
        self.workers = [self.start_worker() for _ in range(self._count)]
        self.await_workers()

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker without a nanny, so that a killed worker does not restart."""
        return self._start("worker", self.address, "--no-nanny", "--nthreads=4")

    def await_workers(self) -> None:
        """Wait until the scheduler knows all workers."""
        distributed: Any = importlib.import_module("distributed")
        keys = distributed.Security(
            tls_ca_file=self._file("ca.pem"),
            tls_client_cert=self._file("member.pem"),
            tls_client_key=self._file("member.key"),
            require_encryption=True,
        )
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        with distributed.Client(
            self.address, security=keys, timeout=_TIMEOUT_SECONDS, set_as_default=False
        ) as client:
            while len(client.scheduler_info(n_workers=-1)["workers"]) != self._count:
                assert time.monotonic() < deadline, "the workers did not register"
                time.sleep(0.1)

    def as_toml(self) -> str:
        """Return the keys of `[cluster]`."""
        return (
            f'scheduler = "{self.address}"\nadvertise = "127.0.0.1"\n'
            f'ca = "{self._file("ca.pem")}"\ncertificate = "{self._file("member.pem")}"\n'
            f'key = "{self._file("member.key")}"\n'
        )

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def _file(self, name: str) -> str:
        return str(self._folder / name)

    def _start(self, role: str, *options: str) -> subprocess.Popen[bytes]:
        keys = (
            f"--tls-ca-file={self._file('ca.pem')}",
            f"--tls-cert={self._file('member.pem')}",
            f"--tls-key={self._file('member.key')}",
        )
        command = [sys.executable, "-m", "dask", role, *options, *keys, "--no-dashboard"]
        with (self._folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)  # noqa: S603
        self._started.append(process)
        return process


def _make_certificates(folder: Path) -> None:
    """Write a CA and one certificate issued by it, which all cluster members share."""
    authority = ec.generate_private_key(ec.SECP256R1())
    member = ec.generate_private_key(ec.SECP256R1())
    for name, key, subject in (("ca", authority, "cluster"), ("member", member, "member")):
        now = datetime.datetime.now(datetime.timezone.utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_make_name(subject))
            .issuer_name(_make_name("cluster"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .sign(authority, hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


def _make_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
