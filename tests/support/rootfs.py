"""Small root filesystems, made from a shell and some programs of this host with their libraries."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = ("sh", "cat", "ls", "rm", "id", "sleep", "stat", "mkdir", "cp", "env", "head", "chmod")


def programs() -> dict[str, bytes]:
    """Return the programs and what they load, by path inside."""
    found: dict[str, bytes] = {}
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/bin:/bin")
        assert path is not None
        found[f"usr/bin/{name}"] = Path(path).read_bytes()
        said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", said):
            found[library.lstrip("/")] = Path(library).read_bytes()
    return found


def add_file(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))


def add_link(archive: tarfile.TarFile, name: str, target: str, kind: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    archive.addfile(member)


def rootfs_tar(
    path: Path, files: Mapping[str, bytes] | None = None, links: Mapping[str, str] | None = None
) -> Path:
    """Write a root filesystem with a shell, a hard link, a device and what else is given."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        add_link(archive, "./bin", "usr/bin", tarfile.SYMTYPE)
        for name, data in programs().items():
            add_file(archive, name, data, 0o755)
        add_file(archive, "etc/kept", b"kept")
        add_file(archive, "etc/removed", b"removed")
        add_link(archive, "etc/hard", "etc/kept", tarfile.LNKTYPE)
        device = tarfile.TarInfo("etc/disk")
        device.type, device.devmajor, device.devminor = tarfile.BLKTYPE, 254, 0
        archive.addfile(device)
        for name, target in (links or {}).items():
            add_link(archive, name, target, tarfile.SYMTYPE)
        for name, data in (files or {}).items():
            add_file(archive, name, data)
    return path


def layer(entries: Mapping[str, bytes | None]) -> bytes:
    """Return a compressed layer; None makes a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in entries.items():
            if data is None:
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(folder)
            else:
                add_file(archive, name, data, 0o755)
    return gzip.compress(out.getvalue(), mtime=0)


def oci_layout(folder: Path, layers: list[bytes], config: Mapping[str, object]) -> Path:
    """Write an image layout with one image, tagged ``latest``."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    prefix = "application/vnd.oci.image"
    plain = [f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}" for data in layers]
    settings = {
        "architecture": "amd64" if platform.machine() == "x86_64" else "arm64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": plain},
    }
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(settings).encode(), f"{prefix}.config.v1+json"),
        "layers": [blob(data, f"{prefix}.layer.v1.tar+gzip") for data in layers],
    }
    described = blob(json.dumps(manifest).encode(), f"{prefix}.manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
