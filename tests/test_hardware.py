"""What the computer says of itself, also where it says little."""

from __future__ import annotations

import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from edgespec.catalog import hardware
from edgespec.catalog.hardware import EnergyMeter, computer, memory_in_use, moment


def test_this_computer_is_known() -> None:
    found = computer()
    assert found.os
    assert found.cpu
    assert 1 <= found.physical_cores <= found.logical_cores
    assert found.ram_bytes > 2**28
    assert memory_in_use() > 2**20
    now = moment()
    assert 0 < now.ram_available_bytes <= found.ram_bytes


def test_where_nothing_is_known_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sensors_temperatures", "sensors_battery"):
        monkeypatch.delattr(psutil, name, raising=False)

    def unknown() -> None:
        raise NotImplementedError

    monkeypatch.setattr(psutil, "cpu_freq", unknown)
    monkeypatch.setattr(hardware, "_CPUINFO", Path("/nowhere"))
    monkeypatch.setattr(hardware, "_CPU_GOVERNOR", Path("/nowhere"))
    monkeypatch.setattr(platform, "processor", lambda: "")
    now = moment()
    assert (now.temperature_c, now.frequency_mhz, now.on_battery) == (None, None, None)
    assert computer().cpu == "unknown"
    assert computer().governor is None


@pytest.mark.parametrize(
    ("battery", "on_battery"),
    [
        (None, None),
        (SimpleNamespace(power_plugged=None), None),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
    ],
)
def test_battery(battery: Any, on_battery: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert moment().on_battery is on_battery


def test_the_hottest_sensor_of_the_processor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "nvme": [SimpleNamespace(current=80.0)],
        "coretemp": [SimpleNamespace(current=51.0), SimpleNamespace(current=63.5)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: found, raising=False)
    assert moment().temperature_c == 63.5


def zone(root: Path, name: str, energy: int, largest: int = 1000) -> Path:
    folder = root / name
    folder.mkdir(exist_ok=True)
    (folder / "energy_uj").write_text(f"{energy}\n", encoding="utf-8")
    (folder / "max_energy_range_uj").write_text(f"{largest}\n", encoding="utf-8")
    return folder


def test_energy_of_all_packages_and_only_of_packages(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 1_000_000)
    zone(tmp_path, "intel-rapl:1", 0)
    zone(tmp_path, "intel-rapl:0:0", 5)
    meter = EnergyMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", 3_000_000)
    zone(tmp_path, "intel-rapl:1", 500_000)
    zone(tmp_path, "intel-rapl:0:0", 99_000_000)
    assert meter.joules() == pytest.approx(2.5)
    assert meter.joules() == 0.0


def test_an_energy_counter_wraps_around(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 9_000_000, 10_000_000)
    meter = EnergyMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", 1_000_000, 10_000_000)
    assert meter.joules() == pytest.approx(2.0)


def test_energy_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert EnergyMeter(tmp_path).joules() is None
    folder = zone(tmp_path, "intel-rapl:0", 5)
    meter = EnergyMeter(tmp_path)
    (folder / "energy_uj").write_text("", encoding="utf-8")
    assert meter.joules() is None
    (folder / "energy_uj").unlink()
    assert EnergyMeter(tmp_path).joules() is None
