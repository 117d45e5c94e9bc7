"""Proxies that the environment sets for HTTP, such as `HTTPS_PROXY`, as httpx uses them."""

import contextlib
import ipaddress
import os
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Return True if a URL names this machine. A request to it uses no proxy, which could not reach it."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or no URL at all
        return False


def describe_proxy(url: str) -> str:
    """Return the proxy of requests to a URL, such as ` through HTTP_PROXY=http://host:3128`; "" if there is none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(url) or urllib.request.proxy_bypass(host):
        return ""
    return next((f" through {_assignment(scheme)}" for scheme in (parts.scheme, "all") if _variable(scheme)), "")


def problem_with_proxies(url: str) -> str:
    """Return the reason why httpx cannot use the proxies of the environment, with the remedy; "" if it can."""
    import httpx

    if is_loopback(url):
        return ""
    try:
        httpx.Client(verify=False).close()
    except (ValueError, ImportError) as error:
        return f"a proxy of the environment cannot be used ({error}); unset or correct it"
    return ""


@contextlib.contextmanager
def without_proxies() -> Iterator[None]:
    """Hide the proxies of the environment from an HTTP client that a library makes in this block."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    os.environ.update(dict.fromkeys(before, "*"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _variable(scheme: str) -> str:
    """Return the name of the variable that sets the proxy of a scheme; "" if none does."""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), "")


def _assignment(scheme: str) -> str:
    """Return the variable with its value, without the user and password in it."""
    name = _variable(scheme)
    start, separator, rest = os.environ[name].rpartition("://")
    return f"{name}={start}{separator}{rest.rpartition('@')[2]}"
