"""Proxies that the environment sets for HTTP, such as `HTTPS_PROXY`, as httpx uses them."""

import contextlib
import importlib.util
import ipaddress
import os
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

_SCHEMES = ("http", "https", "all")


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
    """Return the reason why httpx cannot use the proxies of the environment, with the remedy; "" if it can.

    httpx reads all of them for any request that may use one, also those for other hosts.
    """
    hosts_without = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if is_loopback(url) or "*" in map(str.strip, hosts_without.split(",")):
        return ""
    for scheme in filter(_variable, _SCHEMES):
        name, used = _variable(scheme), _kind(scheme)
        if used in ("socks5", "socks5h") and importlib.util.find_spec("socksio") is None:
            return (
                f"{_assignment(scheme)} is a SOCKS proxy, which requires the package socksio; pip install socksio, or"
                f" unset {name}"
            )
        if used not in ("http", "https", "socks5", "socks5h"):
            return f"{_assignment(scheme)} must be an http, https or socks5 proxy; correct or unset {name}"
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


def _kind(scheme: str) -> str:
    proxy = os.environ[_variable(scheme)]
    return urlsplit(proxy).scheme.lower() if "://" in proxy else "http"


def _assignment(scheme: str) -> str:
    """Return the variable with its value, without the user and password in it."""
    name = _variable(scheme)
    start, separator, rest = os.environ[name].rpartition("://")
    return f"{name}={start}{separator}{rest.rpartition('@')[2]}"
