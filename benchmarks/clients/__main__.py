"""See the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.serving import served

_HERE = Path(__file__).parent
_PYTHON = ("openai<2", "openai<3", "openai")
_NODE = ("openai", "ai", "@ai-sdk/openai-compatible")


async def main() -> None:
    """Run all; ends with an error when one of them fails."""
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        async with served(["--ctx", "4096"]) as one:
            address = str(one.client.base_url.join("/v1"))
            for requirement in _PYTHON:
                failed += await asyncio.to_thread(_python, Path(work), requirement, address)
            failed += await asyncio.to_thread(_node, Path(work), address)
    sys.exit(failed)


def _python(work: Path, requirement: str, address: str) -> int:
    place = Path(tempfile.mkdtemp(dir=work))
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", requirement], check=True)
    return subprocess.run([python, _HERE / "openai_python.py", address], check=False).returncode


def _node(work: Path, address: str) -> int:
    script = work / "openai_node.mjs"  # modules are looked for beside the script
    script.write_bytes((_HERE / "openai_node.mjs").read_bytes())
    subprocess.run(["npm", "install", "--silent", "--prefix", work, *_NODE], check=True)
    return subprocess.run(["node", script, address], check=False).returncode


if __name__ == "__main__":
    asyncio.run(main())
