"""A file server on this machine that misbehaves on demand, and speaks as much of the hub as needed.

    /FILE                                 what `files` holds
    /OWNER/REPO/resolve/REVISION/FILE     the hub: a redirect to /blobs/SHA256, with what a file is
    /api/models/OWNER/REPO/tree/REVISION  the hub's list of files

Every request takes the next `Fault` of the list, if one is left.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Fault:
    """What goes wrong with one request."""

    status: int = 0  # answered instead of the file
    headers: dict[str, str] = field(default_factory=dict)  # with that, or over the usual ones
    drop_after: int | None = None  # bytes of the body, then the connection ends
    without: tuple[str, ...] = ()  # headers to leave out
    ignore_range: bool = False
    flip: bool = False  # send one wrong byte


class Asked:
    """One request that came."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method = handler.command
        self.path = handler.path
        self.headers = handler.headers

    @property
    def range(self) -> str:
        return str(self.headers.get("Range", ""))


class FileServer:
    """files: by path. faults: used up one by one. asked: what came."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.revisions = {"main": COMMIT, COMMIT: COMMIT}
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hub_file(self, repo: str, name: str, content: bytes) -> str:
        """Put a large file into a repository; returns its sha256."""
        self.files[f"/{repo}/{name}"] = content
        return hashlib.sha256(content).hexdigest()

    def content(self, path: str) -> bytes | None:
        if path.startswith("/blobs/"):
            blobs = {hashlib.sha256(one).hexdigest(): one for one in self.files.values()}
            return blobs.get(path.removeprefix("/blobs/"))
        return self.files.get(path)

    def etag(self, path: str, content: bytes) -> str:
        return self.etags.get(path, f'"{hashlib.md5(content).hexdigest()}"')

    @property
    def gets(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "GET"]


@contextmanager
def serve() -> Iterator[FileServer]:
    """A server that runs in threads until the end of the block."""
    files = FileServer()

    class Handler(_Handler):
        server_files = files

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # so that closing waits for them, and no socket is left open

    with Server(("127.0.0.1", 0), Handler) as server:
        files.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield files
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_files: FileServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        files = self.server_files
        files.asked.append(Asked(self))
        fault = files.faults.pop(0) if files.faults else Fault()
        path = unquote(urlsplit(self.path).path)
        if fault.status:
            self._send(fault.status, fault.headers, b"")
        elif path.startswith("/api/models/"):
            self._list(path)
        elif "/resolve/" in path:
            self._resolve(path, fault)
        else:
            self._file(path, fault)

    def _file(self, path: str, fault: Fault) -> None:
        content = self.server_files.content(path)
        if content is None:
            self._send(404, {}, b"")
            return
        etag = self.server_files.etag(path, content)
        headers = {"ETag": etag, "Content-Length": str(len(content))}
        status, body = 200, content
        asked = self.headers.get("Range", "")
        if asked and not fault.ignore_range and self.headers.get("If-Range", etag) == etag:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                self._send(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
                return
            status, body = 206, content[start:]
            headers["Content-Length"] = str(len(body))
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if fault.flip:
            body = bytes([body[0] ^ 1]) + body[1:]
        headers |= fault.headers
        headers = {name: value for name, value in headers.items() if name not in fault.without}
        self._send(status, headers, body if fault.drop_after is None else body[: fault.drop_after])

    def _resolve(self, path: str, fault: Fault) -> None:
        owner, repo, _, revision, name = path[1:].split("/", 4)
        content = self.server_files.files.get(f"/{owner}/{repo}/{name}")
        commit = self.server_files.revisions.get(revision)
        if not any(key.startswith(f"/{owner}/{repo}/") for key in self.server_files.files):
            self._send(404, {"X-Error-Code": "RepoNotFound"}, b"")
        elif commit is None:
            self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
        elif content is None:
            self._send(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b"")
        else:
            sha256 = hashlib.sha256(content).hexdigest()
            headers = {
                "X-Repo-Commit": commit,
                "X-Linked-Etag": f'"{sha256}"',
                "X-Linked-Size": str(len(content)),
                "ETag": '"of-the-redirect"',
                # Another origin, as the hub's own storage is.
                "Location": f"http://localhost:{self.server_files.port}/blobs/{sha256}",
            }
            self._send(302, headers | fault.headers, b"")

    def _list(self, path: str) -> None:
        repo = "/".join(path.split("/")[3:5])
        names = [key for key in self.server_files.files if key.startswith(f"/{repo}/")]
        entries = [
            {"type": "file", "path": key.removeprefix(f"/{repo}/"), "size": 1, "oid": "0"}
            for key in names
        ]
        self._send(200, {"Content-Type": "application/json"}, json.dumps(entries).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has gone
