"""What this computer is, and how hot, busy and fast it is right now. None means unknown."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

_CPU_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_POWERCAP = Path("/sys/class/powercap")
_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "acpitz")


def physical_cores() -> int:
    """Cores this process may use, hyper-threads not counted; at least 1.

    Decoding is bound by memory and vector units, which hyper-threads share.
    """
    logical = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    return max(1, min(psutil.cpu_count(logical=False) or logical, allowed))


@dataclass(frozen=True, slots=True)
class Computer:
    """What does not change while a program runs. Sizes in bytes."""

    os: str
    cpu: str
    physical_cores: int
    logical_cores: int
    ram_bytes: int
    container: bool
    governor: str | None


@dataclass(frozen=True, slots=True)
class Moment:
    """What does change. Load is the mean number of runnable processes over a minute."""

    load_average: float | None
    temperature_c: float | None
    frequency_mhz: float | None
    on_battery: bool | None
    swap_used_bytes: int
    ram_available_bytes: int


def computer() -> Computer:
    """What this computer is."""
    return Computer(
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        physical_cores=physical_cores(),
        logical_cores=os.cpu_count() or 1,
        ram_bytes=psutil.virtual_memory().total,
        container=any(mark.exists() for mark in _CONTAINER_MARKS),
        governor=_first_line(_CPU_GOVERNOR),
    )


def moment() -> Moment:
    """How it is doing now."""
    return Moment(
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        temperature_c=_temperature(),
        frequency_mhz=_frequency(),
        on_battery=_on_battery(),
        swap_used_bytes=psutil.swap_memory().used,
        ram_available_bytes=ram_available(),
    )


def ram_available(cgroup: Path = _CGROUP) -> int:
    """Bytes of memory that can be had without swapping, limits of a container included."""
    free = int(psutil.virtual_memory().available)
    limit, used = (_first_line(cgroup / f"memory.{name}") or "" for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        # What files take in the page cache is given back when it is needed.
        free = min(free, max(0, int(limit) - int(used) + _cached(cgroup / "memory.stat")))
    return free


def memory_in_use() -> int:
    """Bytes of memory this process holds, mapped model files that are in memory included."""
    return int(psutil.Process().memory_info().rss)


class EnergyMeter:
    """Joules used by the processor packages (Linux RAPL), where the user may read them."""

    def __init__(self, root: Path = _POWERCAP) -> None:
        # intel-rapl:0 is a package, intel-rapl:0:0 a part of one; AMD uses the same names.
        self._zones = sorted(
            zone for zone in root.glob("intel-rapl:*") if zone.name.count(":") == 1
        )
        self._last = self._read()

    def joules(self) -> float | None:
        """Energy since the last call, or since the meter was made."""
        before, self._last = self._last, self._read()
        if before is None or self._last is None:
            return None
        used = 0
        for zone, start, end in zip(self._zones, before, self._last, strict=True):
            used += end - start
            if end < start:  # the counter has wrapped around
                used += int(_first_line(zone / "max_energy_range_uj") or 0)
        return used / 1e6

    def _read(self) -> list[int] | None:
        lines = [_first_line(zone / "energy_uj") for zone in self._zones]
        if not lines or not all(line and line.isdigit() for line in lines):
            return None
        return [int(line) for line in lines if line]


def _cached(statistics: Path) -> int:
    try:
        lines = statistics.read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))


def _cpu_name() -> str:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return " ".join(value.split())
    return platform.processor() or "unknown"


def _temperature() -> float | None:
    read = getattr(psutil, "sensors_temperatures", None)  # not on macOS and Windows
    found = read() if read else {}
    for name in _SENSORS:
        if found.get(name):
            return float(max(sensor.current for sensor in found[name]))
    return None


def _frequency() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return float(frequency.current) if frequency and frequency.current else None


def _on_battery() -> bool | None:
    read = getattr(psutil, "sensors_battery", None)
    battery = read() if read else None
    if battery is None or battery.power_plugged is None:
        return None
    return not battery.power_plugged


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").splitlines()[0].strip()
    except (OSError, IndexError):
        return None
