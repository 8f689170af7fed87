"""Whether this machine can run Attune: before anything is downloaded. Standard library only, any Python from 3.6 on.

    python3 check.py PYTHON VENV        PYTHON: the interpreter for the virtual environment, "" if none was found

Prints nothing and exits 0 when all is there; otherwise says what is missing and the one command that brings it.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys

# Measured: 3.5 GB of packages and 0.3 GB for the demo model; the rest is room for the packages' files while they are
# unpacked, and for data.
DISK_GB = 7
# Measured with every part running and a job in training: engine 4.9 GB, trainer 1.5 GB, all others 0.6 GB.
MEMORY_GB = 8
GLIBC = (2, 34)
LIBRARIES = {"libnuma.so.1": "libnuma1", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1"}


def unsupported():
    """The sentence for a system that no command can mend, or None."""
    if sys.platform != "linux":
        return (
            f"Attune's local stack runs on Linux (x86-64); this is {platform.system()}. "
            "Use a Linux machine, a virtual machine, or WSL 2 on Windows."
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"Attune's local stack needs an x86-64 processor; this one is {platform.machine()}."
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < GLIBC:
        return (
            "The packages need glibc {}.{} or newer; this system has {} {}. "
            "Debian 12, Ubuntu 22.04 and newer have it.".format(
                GLIBC[0], GLIBC[1], name or "no glibc", version
            )
        )
    if "avx2" not in cpu_flags():
        return "The processor (or virtual machine) has no AVX2, which vLLM's CPU build needs."
    return None


def cpu_flags():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("flags"):
                return line.split()
    return []


def memory_gb():
    """What this process may use: the machine's memory or its container's share."""
    with open("/proc/meminfo") as lines:
        total = int(lines.readline().split()[1]) * 1024
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            total = min(total, int(file.read()))
    except (OSError, ValueError):  # no limit
        pass
    return total / 1e9


def free_gb(folder):
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return shutil.disk_usage(folder).free / 1e9


def folder_gb(folder):
    """By `du`, which minds neither files that go meanwhile (another setup at work) nor a folder that is not there."""
    command = ["du", "--summarize", "--apparent-size", "--block-size=1", folder]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split()
    return int(found[0]) / 1e9 if found else 0.0


def missing_packages(python):
    """Debian's names of what is not there."""
    packages = []
    if not python:
        packages += ["python3", "python3-venv"] if newest_is_fine() else ["python3.11", "python3.11-venv"]
    elif subprocess.call([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL):
        minor = subprocess.check_output([python, "-c", "import sys; print(sys.version_info[1])"])
        packages.append(f"python3.{minor.decode().strip()}-venv")
    if not shutil.which("make"):
        packages.append("make")
    for library, package in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            packages.append(package)
    return packages


def newest_is_fine():
    """Whether the distribution's own python3 is one of ours (it is on Debian 12 and 13 and Ubuntu 24.04)."""
    text = ""
    if os.path.exists("/etc/os-release"):
        with open("/etc/os-release") as file:
            text = file.read()
    return "jammy" not in text


def main(python, venv):
    sentence = unsupported()
    if sentence:
        print(sentence)
        return 1
    problems = []
    packages = missing_packages(python)
    if packages:
        if not python:
            problems.append(
                "Python 3.11, 3.12 or 3.13 was not found (set PYTHON=... if it has another name)."
            )
        sudo = "" if os.geteuid() == 0 else "sudo "
        names = " ".join(packages)
        if shutil.which("apt-get"):
            command = f"{sudo}apt-get update && {sudo}apt-get install -y {names}"
        else:
            command = f"(your system's package manager) install what Debian calls {names}"
        problems.append(f"Missing: {names}. This brings it:\n\n    {command}\n")
    # A setup that was broken off goes on with what it has brought.
    done = os.path.exists(os.path.join(venv, ".setup-stamp"))
    if not done and free_gb(venv) + folder_gb(venv) < DISK_GB:
        problems.append(
            f"The disk of {os.path.dirname(venv)} has {free_gb(venv):.1f} GB free; setup needs {DISK_GB} GB "
            f"(.venv has {folder_gb(venv):.1f} GB of it)."
        )
    if memory_gb() < MEMORY_GB * 0.95:  # a "7 GB" machine reports a little less
        problems.append(
            f"This machine (or container) has {memory_gb():.1f} GB of memory; the whole stack needs {MEMORY_GB} GB. "
            "To go on all the same, set ATTUNE_SETUP_ANYWAY=1."
        )
        if os.environ.get("ATTUNE_SETUP_ANYWAY"):
            problems.pop()
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
