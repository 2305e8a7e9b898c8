"""Fetches one file by HTTP, and goes on where a dropped connection or a killed process broke off.

Only with the standard library: huggingface_hub brings an HTTP client too, but another one in every
major version. Proxies are taken from the environment.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from email.message import Message
from http.client import HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from typing import IO, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from edgespec.catalog.model_file import Origin, Part
from edgespec.catalog.patience import BUSY, PassingError, Patience, Sleep, asked_to_wait
from edgespec.errors import DownloadError

_TIMEOUT_S = 30.0
_CHUNK = 1 << 20


def fetch(
    url: str,
    part: Part,
    progress: Callable[[int, int | None], None],
    *,
    headers: Mapping[str, str] | None = None,
    size: int | None = None,
    sleep: Sleep = time.sleep,
) -> None:
    """Fetch a file into `part`, going on with what is there if the server has the same version.

    headers: more of them; a login among them is sent to no other host. size: bytes it must have.
    Raises DownloadError, and OSError when it cannot be written; what came stays for the next time.
    """
    patience = Patience(shown(url), sleep)
    furthest = _kept(url, part)
    while True:
        try:
            _receive(Request(url, headers=dict(headers or {})), part, progress, size)
            return
        except PassingError as error:
            if part.size > furthest:
                furthest = part.size
                patience.renew()
            patience.wait(error)


def shown(url: str) -> str:
    """A URL for a message: the query may hold a secret."""
    return url.partition("?")[0]


def _kept(url: str, part: Part) -> int:
    """Bytes of an earlier try that may be the beginning of this file."""
    origin = part.origin
    return part.size if origin is not None and origin.url == url and origin.version else 0


def _receive(
    request: Request, part: Part, progress: Callable[[int, int | None], None], size: int | None
) -> None:
    """One try. Raises PassingError when another may get further."""
    url, origin, done = request.full_url, part.origin, _kept(request.full_url, part)
    if done and origin and origin.version:
        if done == origin.size:
            return  # killed just before it got its final name
        request.add_header("Range", f"bytes={done}-")
        # A file that has changed meanwhile comes whole.
        request.add_header("If-Range", origin.version)
    try:
        response = _open(request)
    except HTTPError as error:
        with error:
            if error.code == 416:
                part.delete()
                raise PassingError("the file has become shorter") from error
            raise _refusal(url, error) from error
    with closing(response):
        total: int | None
        if response.status == 206:
            total = _continued(response, part, done)
        else:
            done, total = 0, _length(response)
            part.begin(Origin(url, _version(response.headers), total))
        if None not in (total, size) and total != size:
            part.delete()
            raise DownloadError(
                f"{shown(url)} has {total} bytes where {size} are expected: it is another file. "
                "Correct its source or size in models.toml."
            )
        _write(response, part, done, total, progress)


def _write(
    response: HTTPResponse,
    part: Part,
    done: int,
    total: int | None,
    progress: Callable[[int, int | None], None],
) -> None:
    with part.path.open("ab") as file:
        progress(done, total)
        # Never more than was announced, whatever the server goes on to send.
        while total is None or done < total:
            chunk = _read(response, _CHUNK if total is None else min(_CHUNK, total - done))
            if not chunk:
                break
            file.write(chunk)
            done += len(chunk)
            progress(done, total)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done < total:
        raise PassingError(f"the connection broke off after {done} of {total} bytes")


def _continued(response: HTTPResponse, part: Part, done: int) -> int:
    """Bytes in all, if the answer goes on exactly behind what is there."""
    start, _, total = response.headers.get("Content-Range", "").partition("-")
    size = total.rpartition("/")[2]
    version, origin = _version(response.headers), part.origin
    same = origin is not None and version in (None, origin.version)
    if not same or start != f"bytes {done}" or not size.isdigit():
        part.delete()
        raise PassingError("the server sent another part than the one asked for")
    return int(size)


def _open(request: Request) -> HTTPResponse:
    """Raises HTTPError for what the server refuses, PassingError for what never reached it."""
    request.add_header("User-Agent", "edgespec")
    where = shown(request.full_url)
    try:
        response = build_opener(_Redirects()).open(request, timeout=_TIMEOUT_S)
    except HTTPError:
        raise
    except (InvalidURL, UnicodeError) as error:
        raise DownloadError(f"{where} is no URL: {error}. Correct it.") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise DownloadError(
                f"Could not fetch {where}: its certificate is not valid here "
                f"({reason.verify_message}). Check the address, the clock, and SSL_CERT_FILE."
            ) from error
        raise PassingError(_words(reason)) from error
    return cast(HTTPResponse, response)


def _read(response: HTTPResponse, most: int) -> bytes:
    try:
        return response.read1(most)
    except (OSError, HTTPException) as error:
        raise PassingError(_words(error)) from error


def _words(error: object) -> str:
    """What happened to a connection, in a few words."""
    if isinstance(error, TimeoutError):
        return "the server does not answer"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]


def _refusal(url: str, error: HTTPError) -> Exception:
    why = f"HTTP {error.code} {error.reason}".rstrip()
    if error.code in BUSY:
        return PassingError(f"the server is busy ({why})", asked_to_wait(error.headers))
    if error.code in (401, 403):
        step = "Where it needs a login, download it by hand and use it with --target PATH."
        return DownloadError(f"Could not fetch {shown(url)}: the server refuses it ({why}). {step}")
    if error.code in (404, 410):
        return DownloadError(f"There is no file {shown(url)} ({why}). Check that address.")
    return DownloadError(f"Could not fetch {shown(url)}: {why}. Check that address and any proxy.")


def _length(response: HTTPResponse) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _version(headers: Message) -> str | None:
    """What tells versions of a file apart; a weak ETag does not."""
    etag = headers.get("ETag")
    if etag and not etag.startswith("W/"):
        return etag
    return headers.get("Last-Modified")


class _Redirects(HTTPRedirectHandler):
    """Follows to other hosts, but neither to plain HTTP nor with the login."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.scheme not in ("https", old.scheme):
            raise DownloadError(
                f"{shown(req.full_url)} redirects to {shown(newurl)}, which is not encrypted. "
                "Use another source."
            )
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            request.remove_header("Authorization")
        return request
