"""An Arm computer in software: Debian's Python for it, run by qemu-user.

    python tests/simulators/aarch64.py FOLDER PACKAGE...

unpacks all of it into FOLDER, with wheels for it of the packages; FOLDER/python is then a Python
like any other. Nothing is installed on the machine. It needs apt-get and dpkg of a Debian or Ubuntu
whose `apt-get update` has run, and takes 150 MB from the network.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

VERSION = "3.11"  # of Python in Debian 12
DEBIAN = "deb [trusted=yes] http://deb.debian.org/debian bookworm main\n"
PACKAGES = (
    f"python{VERSION}-minimal", f"libpython{VERSION}-minimal", f"libpython{VERSION}-stdlib",
    "libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libssl3",
    "libbz2-1.0", "liblzma5", "libsqlite3-0", "libuuid1", "libcrypt1",
)  # fmt: skip
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64", "any")

# Python takes its own path from its first argument, so that child processes run here too.
PYTHON = """#!/bin/sh
exec {folder}/tree/usr/bin/qemu-aarch64-static -L {folder}/tree \\
    -E PYTHONHOME={folder}/tree/usr -E PYTHONPATH={folder}/site${{PYTHONPATH:+:$PYTHONPATH}} \\
    -0 {folder}/python {folder}/tree/usr/bin/python{version} "$@"
"""


def run(*command, cwd):
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def unpack_debian(folder):
    """Python and its libraries for Arm, by apt-get with lists of its own; qemu for this machine."""
    state, packages = folder / "apt", folder / "packages"
    for made in (state / "lists/partial", state / "cache/archives/partial", packages):
        made.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources").write_text(DEBIAN)
    options = [f"-oDir::State={state}", f"-oDir::State::status={state}/status"]
    options += [f"-oDir::State::lists={state}/lists", f"-oDir::Cache={state}/cache"]
    options += [f"-oDir::Etc::sourcelist={state}/sources", "-oDir::Etc::sourceparts=-"]
    options += ["-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64"]
    options += ["-qq", "-oAPT::Sandbox::User=root"]
    run("apt-get", *options, "update", cwd=packages)
    run("apt-get", *options, "download", *PACKAGES, cwd=packages)
    run("apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", "qemu-user-static", cwd=packages)
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", str(package), str(folder / "tree"), cwd=packages)


def unpack_wheels(folder, needed):
    wheels = folder / "wheels"
    options = [option for name in PLATFORMS for option in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", *options]
    command += ["--python-version", VERSION, "-d", str(wheels), *needed]
    run(*command, cwd=folder)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(folder / "site")


def main(folder, needed):
    python = folder / "python"
    if not (folder / "root").exists():
        unpack_debian(folder)
    unpack_wheels(folder, needed)
    python.write_text(PYTHON.format(folder=folder, version=VERSION))
    python.chmod(0o755)
    code = "import platform, numpy, llvmlite; print(platform.machine(), numpy.__version__)"
    subprocess.run([str(python), "-c", code], check=True, env=os.environ | {"PYTHONPATH": ""})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
