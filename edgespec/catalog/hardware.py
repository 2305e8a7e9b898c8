"""What this computer is."""

from __future__ import annotations

import os

import psutil


def physical_cores() -> int:
    """Cores this process may use, hyper-threads not counted; at least 1.

    Decoding is bound by memory and vector units, which hyper-threads share.
    """
    logical = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    return max(1, min(psutil.cpu_count(logical=False) or logical, allowed))
